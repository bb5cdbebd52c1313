#include "core/kernels/cuda/cross_entropy.h"

#include <climits>

#include "core/kernels/cuda/elements.cuh"
#include "core/kernels/cuda/reduce.cuh"

namespace lockstep::cuda {
namespace {

// A block computes a row.

constexpr float kLowest = -3.402823466e38f;

// Calls f(column, value) for the columns below `count` of the row at element `row` that the calling
// thread has, kCount side by side; `count` is a multiple of kCount.
template <int kCount, typename Function>
__device__ void ForRow(const Array& x, int64_t row, int64_t count, Function&& f) {
  for (int64_t c = int64_t{threadIdx.x} * kCount; c < count; c += int64_t{blockDim.x} * kCount) {
    float values[kCount];
    Load(x, row + c, values);
    for (int i = 0; i < kCount; ++i) f(c + i, values[i]);
  }
}

template <int kCount>
__device__ float LargestOfRow(const Array& x, int64_t row, int64_t count) {
  float largest = kLowest;
  ForRow<kCount>(x, row, count,
                 [&](int64_t, float value) { largest = value > largest ? value : largest; });
  return BlockReduce(largest, Larger{});
}

template <int kCount>
__device__ float SumOfExponentials(const Array& x, int64_t row, int64_t count, float largest) {
  float sum = 0;
  ForRow<kCount>(x, row, count, [&](int64_t, float value) { sum += expf(value - largest); });
  return BlockReduce(sum, Plus{});
}

// dx = factor * (softmax - one_hot) for the columns below `count`; each thread writes what it
// reads.
template <int kCount>
__device__ void WriteGradient(const Array& x, int64_t row, int64_t count, float largest, float sum,
                              int64_t target, float factor, const Array& dx) {
  const float inverse = factor / sum;
  for (int64_t c = int64_t{threadIdx.x} * kCount; c < count; c += int64_t{blockDim.x} * kCount) {
    float values[kCount];
    Load(x, row + c, values);
    for (int i = 0; i < kCount; ++i) {
      values[i] = expf(values[i] - largest) * inverse - (c + i == target ? factor : 0.0f);
    }
    Store(dx, row + c, values);
  }
}

__device__ void WriteZeros(int64_t row, int64_t begin, int64_t end, const Array& dx) {
  for (int64_t c = begin + threadIdx.x; c < end; c += blockDim.x) StoreOne(dx, row + c, 0);
}

template <int kCount>
__global__ void CrossEntropyKernel(int64_t classes, Array logits, const int32_t* targets,
                                   float factor, float* losses, Array dlogits) {
  const int64_t row = int64_t{blockIdx.x} * classes;
  const int32_t target = targets[blockIdx.x];
  if (target < 0) {
    if (threadIdx.x == 0) losses[blockIdx.x] = 0;
    if (dlogits.data != nullptr) WriteZeros(row, 0, classes, dlogits);
    return;
  }
  const float chosen = LoadOne(logits, row + target);
  const float largest = LargestOfRow<kCount>(logits, row, classes);
  const float sum = SumOfExponentials<kCount>(logits, row, classes, largest);
  if (threadIdx.x == 0) losses[blockIdx.x] = logf(sum) + (largest - chosen);
  if (dlogits.data == nullptr) return;
  WriteGradient<kCount>(logits, row, classes, largest, sum, target, factor, dlogits);
}

__device__ int FirstOf(const Array& x, int64_t row, int64_t count, float value) {
  int first = INT_MAX;
  ForRow<1>(x, row, count, [&](int64_t c, float v) {
    if (v == value && c < first) first = static_cast<int>(c);
  });
  return BlockReduce(first, Smaller{});
}

__global__ void CountCorrectKernel(int64_t classes, Array logits, const int32_t* targets,
                                   unsigned long long* correct) {
  const int64_t row = int64_t{blockIdx.x} * classes;
  const float largest = LargestOfRow<1>(logits, row, classes);
  const int first = FirstOf(logits, row, classes, largest);
  // Integers add up to the same in any order.
  if (threadIdx.x == 0 && first == targets[blockIdx.x]) atomicAdd(correct, 1ull);
}

__global__ void LargestLogitsKernel(SplitLogits split, float* largest, int32_t* where) {
  const int64_t row = int64_t{blockIdx.x} * split.columns;
  const float best = LargestOfRow<1>(split.logits, row, split.count);
  if (threadIdx.x == 0) largest[blockIdx.x] = best;
  if (where == nullptr) return;
  const int first = FirstOf(split.logits, row, split.count, best);
  if (threadIdx.x != 0) return;
  where[blockIdx.x] = first == INT_MAX ? INT_MAX : static_cast<int32_t>(split.first + first);
}

__global__ void SumExponentialsKernel(SplitLogits split, const float* largest,
                                      const int32_t* targets, float* sums, float* gaps) {
  const int64_t row = int64_t{blockIdx.x} * split.columns;
  const float shift = largest[blockIdx.x];
  const float sum = SumOfExponentials<1>(split.logits, row, split.count, shift);
  if (threadIdx.x != 0) return;
  sums[blockIdx.x] = sum;
  const int64_t target = targets[blockIdx.x] - split.first;
  const bool is_here = target >= 0 && target < split.count;
  gaps[blockIdx.x] = is_here ? shift - LoadOne(split.logits, row + target) : 0;
}

__global__ void SplitCrossEntropyKernel(SplitLogits split, const float* largest, const float* sums,
                                        const float* gaps, const int32_t* targets, float factor,
                                        float* losses, Array dlogits) {
  const int64_t row = int64_t{blockIdx.x} * split.columns;
  const int32_t target = targets[blockIdx.x];
  const float sum = sums[blockIdx.x];
  if (threadIdx.x == 0) losses[blockIdx.x] = target < 0 ? 0 : logf(sum) + gaps[blockIdx.x];
  if (dlogits.data == nullptr) return;
  const int64_t filled = target < 0 ? 0 : split.count;
  WriteGradient<1>(split.logits, row, filled, largest[blockIdx.x], sum, target - split.first,
                   factor, dlogits);
  WriteZeros(row, filled, split.columns, dlogits);
}

}  // namespace

cudaError_t SoftmaxCrossEntropy(cudaStream_t stream, int64_t rows, int64_t classes, Array logits,
                                const int32_t* targets, float factor, float* losses,
                                Array dlogits) {
  if (rows == 0) return cudaSuccess;
  const auto kernel = classes % kVector == 0 ? CrossEntropyKernel<kVector> : CrossEntropyKernel<1>;
  kernel<<<rows, kThreads, 0, stream>>>(classes, logits, targets, factor, losses, dlogits);
  return cudaGetLastError();
}

cudaError_t CountCorrect(cudaStream_t stream, int64_t rows, int64_t classes, Array logits,
                         const int32_t* targets, unsigned long long* correct) {
  if (rows == 0) return cudaSuccess;
  CountCorrectKernel<<<rows, kThreads, 0, stream>>>(classes, logits, targets, correct);
  return cudaGetLastError();
}

cudaError_t LargestLogits(cudaStream_t stream, SplitLogits split, float* largest, int32_t* where) {
  if (split.rows == 0) return cudaSuccess;
  LargestLogitsKernel<<<split.rows, kThreads, 0, stream>>>(split, largest, where);
  return cudaGetLastError();
}

cudaError_t SumExponentials(cudaStream_t stream, SplitLogits split, const float* largest,
                            const int32_t* targets, float* sums, float* gaps) {
  if (split.rows == 0) return cudaSuccess;
  SumExponentialsKernel<<<split.rows, kThreads, 0, stream>>>(split, largest, targets, sums, gaps);
  return cudaGetLastError();
}

cudaError_t SplitCrossEntropy(cudaStream_t stream, SplitLogits split, const float* largest,
                              const float* sums, const float* gaps, const int32_t* targets,
                              float factor, float* losses, Array dlogits) {
  if (split.rows == 0) return cudaSuccess;
  SplitCrossEntropyKernel<<<split.rows, kThreads, 0, stream>>>(split, largest, sums, gaps, targets,
                                                               factor, losses, dlogits);
  return cudaGetLastError();
}

}  // namespace lockstep::cuda
