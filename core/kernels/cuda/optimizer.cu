#include "core/kernels/cuda/elements.cuh"
#include "core/kernels/cuda/optimizer.h"
#include "core/kernels/cuda/tensor_batch.cuh"

namespace lockstep::cuda {
namespace {

constexpr int kBlockElements = kThreads * kVector;

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
__global__ void UpdateKernel(Update update,
                             const __grid_constant__ TensorBatch<OptimizedArrays> batch) {
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
cudaError_t Run(cudaStream_t stream, Update update, std::span<const OptimizedArrays> tensors) {
  static_assert(sizeof(Update) <= kOtherArgumentBytes);
  return ForBatches(tensors, kBlockElements, [&](const TensorBatch<OptimizedArrays>& batch) {
    UpdateKernel<<<batch.blocks, kThreads, 0, stream>>>(update, batch);
    return cudaGetLastError();
  });
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
