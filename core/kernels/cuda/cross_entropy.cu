#include <climits>

#include "core/kernels/cuda/cross_entropy.h"
#include "core/kernels/cuda/elements.cuh"
#include "core/kernels/cuda/reduce.cuh"

namespace lockstep::cuda {
namespace {

// A block computes a row. Rows of a vocabulary get large blocks: few rows are then under way at a
// time, and what is read twice of them is still in the second cache.
constexpr int kMostThreads = 512;
constexpr int64_t kLongRow = 8192;

int ThreadsFor(int64_t columns) { return columns < kLongRow ? kThreads : kMostThreads; }

constexpr float kLowest = -3.402823466e38f;
constexpr float kLog2E = 1.44269504f;

// e^(x - largest)
__device__ __forceinline__ float Exponential(float x, float largest) {
  return exp2f((x - largest) * kLog2E);
}

// Calls f(column, values) for the first `count` elements of `row` that the calling thread has,
// kCount of them side by side or, behind the last whole group, one. Two groups are loaded at a
// time.
template <int kCount, typename T, typename Function>
__device__ __forceinline__ void ForRow(const T* row, int64_t count, Function&& f) {
  const int64_t whole = count - count % kCount, step = int64_t{blockDim.x} * kCount;
  int64_t c = int64_t{threadIdx.x} * kCount;
  for (; c + step < whole; c += 2 * step) {
    float values[kCount], next[kCount];
    Load(row, c, values);
    Load(row, c + step, next);
    f(c, values);
    f(c + step, next);
  }
  if (c < whole) {
    float values[kCount];
    Load(row, c, values);
    f(c, values);
  }
  for (c = whole + threadIdx.x; c < count; c += blockDim.x) {
    float value[1];
    Load(row, c, value);
    f(c, value);
  }
}

template <int kCount, typename T>
__device__ float LargestOfRow(const T* row, int64_t count) {
  float largest = kLowest;
  ForRow<kCount>(row, count, [&](int64_t, const auto& values) {
    for (const float value : values) largest = value > largest ? value : largest;
  });
  return BlockReduce(largest, Larger{});
}

template <int kCount, typename T>
__device__ float SumOfExponentials(const T* row, int64_t count, float largest) {
  float sum = 0;
  ForRow<kCount>(row, count, [&](int64_t, const auto& values) {
    for (const float value : values) sum += Exponential(value, largest);
  });
  return BlockReduce(sum, Plus{});
}

// Both at once: a thread's sum is relative to the largest that it has seen so far (Milakov and
// Gimelshein, "Online normalizer calculation for softmax", 2018).
struct LargestAndSum {
  float largest, sum;
};
template <int kCount, typename T>
__device__ LargestAndSum Normalizer(const T* row, int64_t count) {
  float largest = kLowest, sum = 0;
  ForRow<kCount>(row, count, [&](int64_t, const auto& values) {
    float above = largest;
    for (const float value : values) above = value > above ? value : above;
    sum *= Exponential(largest, above);
    largest = above;
    for (const float value : values) sum += Exponential(value, largest);
  });
  const float of_all = BlockReduce(largest, Larger{});
  return {of_all, BlockReduce(sum * Exponential(largest, of_all), Plus{})};
}

// dx = factor * (softmax - one_hot) for the first `count` elements of `row`, which is row `first`
// of dx or dx itself: each thread writes what it reads.
template <int kCount, typename T>
__device__ void WriteGradient(const T* row, int64_t count, float largest, float sum, int64_t target,
                              float factor, const Array& dx, int64_t first) {
  const float inverse = factor / sum;
  ForRow<kCount>(row, count, [&]<int kSize>(int64_t c, float(&values)[kSize]) {
    for (float& value : values) value = Exponential(value, largest) * inverse;
    for (int i = 0; i < kSize; ++i) {
      if (c + i == target) values[i] -= factor;
    }
    Store(dx, first + c, values);
  });
}

__device__ void WriteZeros(int64_t row, int64_t begin, int64_t end, const Array& dx) {
  for (int64_t c = begin + threadIdx.x; c < end; c += blockDim.x) StoreOne(dx, row + c, 0);
}

template <int kCount, typename T>
__global__ void __launch_bounds__(kMostThreads, 2)
    CrossEntropyKernel(int64_t columns, int64_t classes, const T* logits, const int32_t* targets,
                       float factor, float* losses, Array dlogits) {
  const int64_t first = int64_t{blockIdx.x} * columns;
  const int32_t target = targets[blockIdx.x];
  if (target < 0) {
    if (threadIdx.x == 0) losses[blockIdx.x] = 0;
    if (dlogits.data != nullptr) WriteZeros(first, 0, columns, dlogits);
    return;
  }
  const T* const row = logits + first;
  const float chosen = ToFloat(row[target]);
  const LargestAndSum n = Normalizer<kCount>(row, classes);
  if (threadIdx.x == 0) losses[blockIdx.x] = logf(n.sum) + (n.largest - chosen);
  if (dlogits.data == nullptr) return;
  WriteGradient<kCount>(row, classes, n.largest, n.sum, target, factor, dlogits, first);
  WriteZeros(first, classes, columns, dlogits);
}

template <int kCount, typename T>
__device__ int FirstOf(const T* row, int64_t count, float wanted) {
  int first = INT_MAX;
  ForRow<kCount>(row, count, [&]<int kSize>(int64_t c, const float(&values)[kSize]) {
    for (int i = 0; i < kSize; ++i) {
      if (values[i] == wanted && c + i < first) first = static_cast<int>(c + i);
    }
  });
  return BlockReduce(first, Smaller{});
}

template <int kCount, typename T>
__global__ void __launch_bounds__(kMostThreads, 2)
    CountCorrectKernel(int64_t columns, int64_t classes, const T* logits, const int32_t* targets,
                       unsigned long long* correct) {
  const T* const row = logits + int64_t{blockIdx.x} * columns;
  const float largest = LargestOfRow<kCount>(row, classes);
  const int first = FirstOf<kCount>(row, classes, largest);
  // Integers add up to the same in any order.
  if (threadIdx.x == 0 && first == targets[blockIdx.x]) atomicAdd(correct, 1ull);
}

template <int kCount, typename T>
__global__ void __launch_bounds__(kMostThreads, 2)
    LargestLogitsKernel(ClassLogits x, const T* logits, float* largest, int32_t* where) {
  const T* const row = logits + int64_t{blockIdx.x} * x.columns;
  const float best = LargestOfRow<kCount>(row, x.count);
  if (threadIdx.x == 0) largest[blockIdx.x] = best;
  if (where == nullptr) return;
  const int first = FirstOf<kCount>(row, x.count, best);
  if (threadIdx.x != 0) return;
  where[blockIdx.x] = first == INT_MAX ? INT_MAX : static_cast<int32_t>(x.first + first);
}

template <int kCount, typename T>
__global__ void __launch_bounds__(kMostThreads, 2)
    SumExponentialsKernel(ClassLogits x, const T* logits, const float* largest,
                          const int32_t* targets, float* sums, float* gaps) {
  const T* const row = logits + int64_t{blockIdx.x} * x.columns;
  const float shift = largest[blockIdx.x];
  const float sum = SumOfExponentials<kCount>(row, x.count, shift);
  if (threadIdx.x != 0) return;
  sums[blockIdx.x] = sum;
  const int64_t target = targets[blockIdx.x] - x.first;
  const bool is_here = target >= 0 && target < x.count;
  gaps[blockIdx.x] = is_here ? shift - ToFloat(row[target]) : 0;
}

template <int kCount, typename T>
__global__ void __launch_bounds__(kMostThreads, 2)
    SplitCrossEntropyKernel(ClassLogits x, const T* logits, const float* largest, const float* sums,
                            const float* gaps, const int32_t* targets, float factor, float* losses,
                            Array dlogits) {
  const int64_t first = int64_t{blockIdx.x} * x.columns;
  const int32_t target = targets[blockIdx.x];
  const float sum = sums[blockIdx.x];
  if (threadIdx.x == 0) losses[blockIdx.x] = target < 0 ? 0 : logf(sum) + gaps[blockIdx.x];
  if (dlogits.data == nullptr) return;
  const int64_t filled = target < 0 ? 0 : x.count;
  WriteGradient<kCount>(logits + first, filled, largest[blockIdx.x], sum, target - x.first, factor,
                        dlogits, first);
  WriteZeros(first, filled, x.columns, dlogits);
}

}  // namespace

cudaError_t SoftmaxCrossEntropy(cudaStream_t stream, ClassLogits x, const int32_t* targets,
                                float factor, float* losses, Array dlogits) {
  if (x.rows == 0) return cudaSuccess;
  return WithType(x.logits, [&](const auto* logits) {
    using T = ElementOf<decltype(logits)>;
    const auto kernel =
        x.columns % kVector == 0 ? CrossEntropyKernel<kVector, T> : CrossEntropyKernel<1, T>;
    kernel<<<x.rows, ThreadsFor(x.columns), 0, stream>>>(x.columns, x.count, logits, targets,
                                                         factor, losses, dlogits);
    return cudaGetLastError();
  });
}

cudaError_t CountCorrect(cudaStream_t stream, ClassLogits x, const int32_t* targets,
                         unsigned long long* correct) {
  if (x.rows == 0) return cudaSuccess;
  return WithType(x.logits, [&](const auto* logits) {
    using T = ElementOf<decltype(logits)>;
    const auto kernel =
        x.columns % kVector == 0 ? CountCorrectKernel<kVector, T> : CountCorrectKernel<1, T>;
    kernel<<<x.rows, ThreadsFor(x.columns), 0, stream>>>(x.columns, x.count, logits, targets,
                                                         correct);
    return cudaGetLastError();
  });
}

cudaError_t LargestLogits(cudaStream_t stream, ClassLogits x, float* largest, int32_t* where) {
  if (x.rows == 0) return cudaSuccess;
  return WithType(x.logits, [&](const auto* logits) {
    using T = ElementOf<decltype(logits)>;
    const auto kernel =
        x.columns % kVector == 0 ? LargestLogitsKernel<kVector, T> : LargestLogitsKernel<1, T>;
    kernel<<<x.rows, ThreadsFor(x.columns), 0, stream>>>(x, logits, largest, where);
    return cudaGetLastError();
  });
}

cudaError_t SumExponentials(cudaStream_t stream, ClassLogits x, const float* largest,
                            const int32_t* targets, float* sums, float* gaps) {
  if (x.rows == 0) return cudaSuccess;
  return WithType(x.logits, [&](const auto* logits) {
    using T = ElementOf<decltype(logits)>;
    const auto kernel =
        x.columns % kVector == 0 ? SumExponentialsKernel<kVector, T> : SumExponentialsKernel<1, T>;
    kernel<<<x.rows, ThreadsFor(x.columns), 0, stream>>>(x, logits, largest, targets, sums, gaps);
    return cudaGetLastError();
  });
}

cudaError_t SplitCrossEntropy(cudaStream_t stream, ClassLogits x, const float* largest,
                              const float* sums, const float* gaps, const int32_t* targets,
                              float factor, float* losses, Array dlogits) {
  if (x.rows == 0) return cudaSuccess;
  return WithType(x.logits, [&](const auto* logits) {
    using T = ElementOf<decltype(logits)>;
    const auto kernel = x.columns % kVector == 0 ? SplitCrossEntropyKernel<kVector, T>
                                                 : SplitCrossEntropyKernel<1, T>;
    kernel<<<x.rows, ThreadsFor(x.columns), 0, stream>>>(x, logits, largest, sums, gaps, targets,
                                                         factor, losses, dlogits);
    return cudaGetLastError();
  });
}

}  // namespace lockstep::cuda
