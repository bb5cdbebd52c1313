#include "core/kernels/cuda/elements.cuh"
#include "core/kernels/cuda/optimizer.h"

namespace lockstep::cuda {
namespace {

// The tensors of one launch, as an argument of the kernel: the device reads them without a copy
// that the host would have to wait for. An argument may have 32,764 bytes.
struct Batch {
  static constexpr int kMost = 424;
  int count = 0;
  uint32_t blocks = 0;               // of all tensors
  uint32_t first_block[kMost] = {};  // of each: ascending, as none is empty
  OptimizedArrays tensors[kMost] = {};
};

constexpr int kBlockElements = kThreads * kVector;

// The last tensor that begins at or before the block.
__device__ int TensorOf(const Batch& batch, uint32_t block) {
  int low = 0, high = batch.count;  // it is in [low, high)
  while (high - low > 1) {
    const int middle = (low + high) / 2;
    (batch.first_block[middle] <= block ? low : high) = middle;
  }
  return low;
}

// Updates kCount elements from `at` on: update(decays, slope, parameter, one state, another).
template <int kCount, typename Update>
__device__ void UpdateAt(const Update& update, int64_t at, const OptimizedArrays& of) {
  const Array parameter{of.parameter}, first{of.states[0]}, second{of.states[1]};
  float g[kCount], p[kCount], m[kCount] = {}, v[kCount] = {};
  Load(of.gradient, at, g);
  Load(parameter, at, p);
  if (first.data != nullptr) Load(first, at, m);
  if (second.data != nullptr) Load(second, at, v);
  for (int i = 0; i < kCount; ++i) update(of.decays, g[i], p[i], m[i], v[i]);
  Store(parameter, at, p);
  if (first.data != nullptr) Store(first, at, m);
  if (second.data != nullptr) Store(second, at, v);
  if (of.copy.data != nullptr) Store(of.copy, at, p);
}

template <typename Update>
__global__ void UpdateKernel(Update update, const __grid_constant__ Batch batch) {
  const int tensor = TensorOf(batch, blockIdx.x);
  const OptimizedArrays& of = batch.tensors[tensor];
  const int64_t block = blockIdx.x - batch.first_block[tensor];
  const int64_t at = block * kBlockElements + threadIdx.x * kVector;
  if (at + kVector <= of.elements) {
    UpdateAt<kVector>(update, at, of);
  } else {
    for (int64_t i = at; i < of.elements; ++i) UpdateAt<1>(update, i, of);
  }
}

template <typename Update>
cudaError_t Launch(cudaStream_t stream, Update update, const Batch& batch) {
  static_assert(sizeof(Update) + alignof(Batch) + sizeof(Batch) <= 32764);
  if (batch.count == 0) return cudaSuccess;
  UpdateKernel<<<batch.blocks, kThreads, 0, stream>>>(update, batch);
  return cudaGetLastError();
}

template <typename Update>
cudaError_t Run(cudaStream_t stream, Update update, std::span<const OptimizedArrays> tensors) {
  Batch batch;
  for (const OptimizedArrays& tensor : tensors) {
    if (tensor.elements == 0) continue;
    if (batch.count == Batch::kMost) {
      const cudaError_t error = Launch(stream, update, batch);
      if (error != cudaSuccess) return error;
      batch.count = 0;
      batch.blocks = 0;
    }
    batch.first_block[batch.count] = batch.blocks;
    batch.tensors[batch.count++] = tensor;
    batch.blocks += static_cast<uint32_t>(BlocksFor(tensor.elements, kBlockElements));
  }
  return Launch(stream, update, batch);
}

struct AdamWUpdate {
  AdamWFactors f;
  __device__ void operator()(bool decays, float g, float& p, float& m, float& v) const {
    const float slope = g * f.gradient;
    m = f.beta1 * m + (1 - f.beta1) * slope;
    v = f.beta2 * v + (1 - f.beta2) * slope * slope;
    p = p * (decays ? f.keep : 1.0f) - f.rate * m / (sqrtf(v) * f.root + f.epsilon);
  }
};

struct SgdUpdate {
  SgdFactors f;
  __device__ void operator()(bool decays, float g, float& p, float&, float&) const {
    p -= f.rate * (g * f.gradient + (decays ? f.decay : 0.0f) * p);
  }
};

struct MomentumUpdate {
  SgdFactors f;
  __device__ void operator()(bool decays, float g, float& p, float& b, float&) const {
    const float slope = g * f.gradient + (decays ? f.decay : 0.0f) * p;
    b = f.momentum * b + slope;
    p -= f.rate * (f.slope * slope + f.buffer * b);
  }
};

}  // namespace

cudaError_t AdamWStep(cudaStream_t stream, AdamWFactors factors,
                      std::span<const OptimizedArrays> tensors) {
  return Run(stream, AdamWUpdate{factors}, tensors);
}

cudaError_t SgdStep(cudaStream_t stream, SgdFactors factors,
                    std::span<const OptimizedArrays> tensors) {
  return factors.momentum == 0 ? Run(stream, SgdUpdate{factors}, tensors)
                               : Run(stream, MomentumUpdate{factors}, tensors);
}

}  // namespace lockstep::cuda
