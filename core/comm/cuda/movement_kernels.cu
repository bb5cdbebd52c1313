#include "core/comm/cuda/movement_kernels.h"
#include "cuda_bf16.h"
#include "cuda_fp16.h"
#include "cuda_runtime.h"

namespace lockstep::cuda {
namespace {

constexpr int kThreads = 256;
constexpr int kVectorBytes = 16;  // what a thread moves at once where all addresses allow it

// What an element is stored as, what it is combined in, and the way between the two.
template <typename T>
struct Plain {
  using Stored = T;
  using Combined = T;
  static __device__ T Load(T x) { return x; }
  static __device__ T Store(T x) { return x; }
};
struct Half {
  using Stored = __half;
  using Combined = float;
  static __device__ float Load(__half x) { return __half2float(x); }
  static __device__ __half Store(float x) { return __float2half_rn(x); }
};
struct BFloat16 {
  using Stored = __nv_bfloat16;
  using Combined = float;
  static __device__ float Load(__nv_bfloat16 x) { return __bfloat162float(x); }
  static __device__ __nv_bfloat16 Store(float x) { return __float2bfloat16_rn(x); }
};

__device__ float Add(float a, float b) { return a + b; }
__device__ double Add(double a, double b) { return a + b; }
__device__ float Multiply(float a, float b) { return a * b; }
__device__ double Multiply(double a, double b) { return a * b; }
// Integers wrap around where signed arithmetic must not.
__device__ int32_t Add(int32_t a, int32_t b) {
  return static_cast<int32_t>(static_cast<uint32_t>(a) + static_cast<uint32_t>(b));
}
__device__ int64_t Add(int64_t a, int64_t b) {
  return static_cast<int64_t>(static_cast<uint64_t>(a) + static_cast<uint64_t>(b));
}
__device__ int32_t Multiply(int32_t a, int32_t b) {
  return static_cast<int32_t>(static_cast<uint32_t>(a) * static_cast<uint32_t>(b));
}
__device__ int64_t Multiply(int64_t a, int64_t b) {
  return static_cast<int64_t>(static_cast<uint64_t>(a) * static_cast<uint64_t>(b));
}

// The operation is a value: all threads take the same branch, and a kernel is compiled once a
// dtype.
template <typename T>
__device__ T Combine(ReduceOp op, T a, T b) {
  switch (op) {
    case ReduceOp::kMin:
      return b < a || b != b ? b : a;  // b != b: a NaN is kept from wherever it comes
    case ReduceOp::kMax:
      return b > a || b != b ? b : a;
    case ReduceOp::kProduct:
      return Multiply(a, b);
    default:
      return Add(a, b);
  }
}

template <typename Type, int kCount>
struct alignas(kCount * sizeof(typename Type::Stored)) Run {
  typename Type::Stored values[kCount];
};

// left = left op right, rounded as the dtype is stored: a node of the tree.
template <typename Type, int kCount>
__device__ void Merge(ReduceOp op, Run<Type, kCount>& left, const Run<Type, kCount>& right) {
  for (int i = 0; i < kCount; ++i) {
    left.values[i] =
        Type::Store(Combine(op, Type::Load(left.values[i]), Type::Load(right.values[i])));
  }
}

// A node with 2^level members for each level, at most.
constexpr int kLevels = 7;
static_assert(kMostMembers < 1 << kLevels);

// The tree of core/base/sum_tree.h over the members, as a binary counter: a member that comes is
// merged with the node at level 0 if bit 0 of the number of members before it is set, that sum with
// the node at level 1 if bit 1 is, and so on. Loops over levels are unrolled, so that the nodes
// stay in registers.
template <typename Type, int kCount>
__global__ void ReduceKernel(ReduceOp op, const __grid_constant__ ReduceMembers members,
                             int64_t runs) {
  using Values = Run<Type, kCount>;
  const int64_t at = int64_t{blockIdx.x} * blockDim.x + threadIdx.x;
  if (at >= runs) return;
  Values nodes[kLevels];
  for (int member = 0; member < members.input_count; ++member) {
    Values sum = static_cast<const Values*>(members.inputs[member])[at];
    bool carries = true;
#pragma unroll
    for (int level = 0; level < kLevels; ++level) {
      if (!carries) continue;
      if ((member >> level & 1) != 0) {
        Merge<Type, kCount>(op, nodes[level], sum);
        sum = nodes[level];
      } else {
        nodes[level] = sum;
        carries = false;
      }
    }
  }
  // The nodes that are left, from the last members' on.
  Values sum = {};
  bool has_sum = false;
#pragma unroll
  for (int level = 0; level < kLevels; ++level) {
    if ((members.input_count >> level & 1) == 0) continue;
    if (has_sum) Merge<Type, kCount>(op, nodes[level], sum);
    sum = nodes[level];
    has_sum = true;
  }
  if (op == ReduceOp::kAverage) {
    const auto count = static_cast<typename Type::Combined>(members.input_count);
    for (int i = 0; i < kCount; ++i) {
      sum.values[i] = Type::Store(Type::Load(sum.values[i]) / count);
    }
  }
  for (int member = 0; member < members.output_count; ++member) {
    static_cast<Values*>(members.outputs[member])[at] = sum;
  }
}

unsigned BlocksFor(int64_t items) {
  return static_cast<unsigned>((items + kThreads - 1) / kThreads);
}

bool IsAligned(const void* address) {
  return reinterpret_cast<uintptr_t>(address) % kVectorBytes == 0;
}

bool AllAligned(const ReduceMembers& members) {
  for (int i = 0; i < members.input_count; ++i) {
    if (!IsAligned(members.inputs[i])) return false;
  }
  for (int i = 0; i < members.output_count; ++i) {
    if (!IsAligned(members.outputs[i])) return false;
  }
  return true;
}

template <typename Type, int kCount>
void Launch(cudaStream_t stream, ReduceOp op, const ReduceMembers& members, int64_t runs) {
  if (runs == 0) return;
  ReduceKernel<Type, kCount><<<BlocksFor(runs), kThreads, 0, stream>>>(op, members, runs);
}

// Runs of 16 bytes, then what is left of them, element by element.
template <typename Type>
cudaError_t Reduce(cudaStream_t stream, ReduceOp op, ReduceMembers members, int64_t count) {
  using Stored = typename Type::Stored;
  constexpr int kRun = kVectorBytes / sizeof(Stored);
  const int64_t runs = AllAligned(members) ? count / kRun : 0;
  Launch<Type, kRun>(stream, op, members, runs);
  const int64_t done = runs * kRun;
  for (int i = 0; i < members.input_count; ++i) {
    members.inputs[i] = static_cast<const Stored*>(members.inputs[i]) + done;
  }
  for (int i = 0; i < members.output_count; ++i) {
    members.outputs[i] = static_cast<Stored*>(members.outputs[i]) + done;
  }
  Launch<Type, 1>(stream, op, members, count - done);
  return cudaGetLastError();
}

template <typename Word>
__global__ void SwapKernel(Word* one, Word* other, int64_t words) {
  const int64_t at = int64_t{blockIdx.x} * blockDim.x + threadIdx.x;
  if (at >= words) return;
  const Word word = one[at];
  one[at] = other[at];
  other[at] = word;
}

}  // namespace

cudaError_t ReduceByTree(cudaStream_t stream, DType dtype, ReduceOp op,
                         const ReduceMembers& members, int64_t count) {
  switch (dtype) {
    case DType::kF32:
      return Reduce<Plain<float>>(stream, op, members, count);
    case DType::kF16:
      return Reduce<Half>(stream, op, members, count);
    case DType::kBF16:
      return Reduce<BFloat16>(stream, op, members, count);
    case DType::kF64:
      return Reduce<Plain<double>>(stream, op, members, count);
    case DType::kI32:
      return Reduce<Plain<int32_t>>(stream, op, members, count);
    case DType::kI64:
      return Reduce<Plain<int64_t>>(stream, op, members, count);
    case DType::kU8:
      break;
  }
  return cudaErrorInvalidValue;
}

cudaError_t SwapBytes(cudaStream_t stream, void* one, void* other, int64_t bytes) {
  const int64_t words = IsAligned(one) && IsAligned(other) ? bytes / kVectorBytes : 0;
  if (words > 0) {
    SwapKernel<<<BlocksFor(words), kThreads, 0, stream>>>(static_cast<uint4*>(one),
                                                          static_cast<uint4*>(other), words);
  }
  const int64_t done = words * kVectorBytes;
  if (bytes > done) {
    SwapKernel<<<BlocksFor(bytes - done), kThreads, 0, stream>>>(
        static_cast<uint8_t*>(one) + done, static_cast<uint8_t*>(other) + done, bytes - done);
  }
  return cudaGetLastError();
}

}  // namespace lockstep::cuda
