#include "core/kernels/cuda/elements.cuh"
#include "core/kernels/cuda/reduce.cuh"
#include "core/kernels/cuda/reductions.h"
#include "core/kernels/cuda/tensor_batch.cuh"

namespace lockstep::cuda {
namespace {

using Batch = TensorBatch<ReducedArray>;

// Elements of a block: some vectors for each of its threads.
constexpr int64_t kBlockElements = 16 * kVector * kThreads;

// partial[block] = value(element) of the block's part of a tensor, combined. Two vectors are loaded
// at a time.
template <typename T, typename Value, typename Op>
__global__ void PartialKernel(Value value, Op op, T start, T* partial,
                              const __grid_constant__ Batch batch) {
  const int tensor = TensorOf(batch, blockIdx.x);
  const ReducedArray& of = batch.tensors[tensor];
  const int64_t first = (int64_t{blockIdx.x} - batch.first_block[tensor]) * kBlockElements;
  const int64_t last = first + kBlockElements < of.elements ? first + kBlockElements : of.elements;
  const int64_t whole = last - (last - first) % kVector, step = int64_t{blockDim.x} * kVector;
  T sum = start;
  const auto add = [&](const float(&values)[kVector]) {
    for (const float one : values) sum = op(sum, value(one));
  };
  int64_t i = first + int64_t{threadIdx.x} * kVector;
  for (; i + step < whole; i += 2 * step) {
    float values[kVector], next[kVector];
    Load(of.x, i, values);
    Load(of.x, i + step, next);
    add(values);
    add(next);
  }
  if (i < whole) {
    float values[kVector];
    Load(of.x, i, values);
    add(values);
  }
  for (i = whole + threadIdx.x; i < last; i += blockDim.x) sum = op(sum, value(LoadOne(of.x, i)));
  sum = BlockReduce(sum, op);
  if (threadIdx.x == 0) partial[blockIdx.x] = sum;
}

template <typename T, typename Op>
__global__ void FinishKernel(int64_t count, const T* partial, Op op, T start, T* result) {
  T sum = start;
  for (int64_t i = threadIdx.x; i < count; i += blockDim.x) sum = op(sum, partial[i]);
  sum = BlockReduce(sum, op);
  if (threadIdx.x == 0) *result = sum;
}

template <typename T, typename Value, typename Op>
cudaError_t Reduce(cudaStream_t stream, std::span<const ReducedArray> tensors, Value value, Op op,
                   T start, T* partial, T* result) {
  static_assert(sizeof(Value) + sizeof(Op) + sizeof(T) + sizeof(T*) + 3 * alignof(T) <=
                kOtherArgumentBytes);
  int64_t partials = 0;
  const cudaError_t error = ForBatches(tensors, kBlockElements, [&](const Batch& batch) {
    PartialKernel<<<batch.blocks, kThreads, 0, stream>>>(value, op, start, partial + partials,
                                                         batch);
    partials += batch.blocks;
    return cudaGetLastError();
  });
  if (error != cudaSuccess) return error;
  FinishKernel<<<1, kThreads, 0, stream>>>(partials, partial, op, start, result);
  return cudaGetLastError();
}

struct MagnitudeBits {
  __device__ uint32_t operator()(float x) const { return __float_as_uint(x) & 0x7fffffffu; }
};

struct Binned {
  double sums[3];
};

struct PlusBins {
  __device__ Binned operator()(const Binned& a, const Binned& b) const {
    return {{a.sums[0] + b.sums[0], a.sums[1] + b.sums[1], a.sums[2] + b.sums[2]}};
  }
};

struct BinnedSquare {
  SquareBins bins;
  __device__ Binned operator()(float x) const {
    const double value = x;
    double rest = value * value;  // exact: 48 bits
    Binned result;
    for (int bin = 0; bin < 3; ++bin) {
      result.sums[bin] = (rest + bins.middle[bin]) - bins.middle[bin];
      rest -= result.sums[bin];
    }
    return result;
  }
};

// As WarpReduce of reduce.cuh, bin by bin.
__device__ Binned WarpReduce(Binned value, PlusBins) {
  for (double& sum : value.sums) sum = WarpReduce(sum, Plus{});
  return value;
}

}  // namespace

int64_t PartialsOf(std::span<const ReducedArray> tensors) {
  int64_t partials = 0;
  for (const ReducedArray& tensor : tensors) partials += BlocksFor(tensor.elements, kBlockElements);
  return partials;
}

cudaError_t MaxMagnitude(cudaStream_t stream, std::span<const ReducedArray> tensors,
                         uint32_t* partial, uint32_t* largest) {
  return Reduce(stream, tensors, MagnitudeBits{}, Larger{}, 0u, partial, largest);
}

cudaError_t SumOfSquares(cudaStream_t stream, std::span<const ReducedArray> tensors,
                         SquareBins bins, double* partial, double* sums) {
  static_assert(sizeof(Binned) == 3 * sizeof(double));
  return Reduce(stream, tensors, BinnedSquare{bins}, PlusBins{}, Binned{},
                reinterpret_cast<Binned*>(partial), reinterpret_cast<Binned*>(sums));
}

}  // namespace lockstep::cuda
