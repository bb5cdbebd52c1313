#include <cstddef>
#include <utility>

#include "core/kernels/cuda/elements.cuh"
#include "core/kernels/cuda/optimizer.h"
#include "core/kernels/cuda/tensor_batch.cuh"

namespace lockstep::cuda {
namespace {

constexpr int kBlockElements = kThreads * kVector;

// Updates kCount elements from `at` on.
template <int kCount, typename Update, size_t... kState>
__device__ void UpdateAt(const Update& update, float decay, float gradient_factor, int64_t at,
                         const OptimizedArrays& of, std::index_sequence<kState...>) {
  const Array parameter{of.parameter};
  float g[kCount], p[kCount], states[kMostOptimizerStates][kCount];
  Load(of.gradient, at, g);
  Load(parameter, at, p);
  (Load(Array{of.states[kState]}, at, states[kState]), ...);
  for (int i = 0; i < kCount; ++i) {
    update(decay, g[i] * gradient_factor, p[i], states[kState][i]...);
  }
  Store(parameter, at, p);
  (Store(Array{of.states[kState]}, at, states[kState]), ...);
  if (of.copy.data != nullptr) Store(of.copy, at, p);
}

template <typename Update>
__global__ void UpdateKernel(Update update, float weight_decay, float gradient_factor,
                             const __grid_constant__ TensorBatch<OptimizedArrays> batch) {
  constexpr StateIndices<Update> kStates;
  const int tensor = TensorOf(batch, blockIdx.x);
  const OptimizedArrays& of = batch.tensors[tensor];
  const float decay = of.decays ? weight_decay : 0.0f;
  const int64_t block = blockIdx.x - batch.first_block[tensor];
  const int64_t at = block * kBlockElements + threadIdx.x * kVector;
  if (at + kVector <= of.elements) {
    UpdateAt<kVector>(update, decay, gradient_factor, at, of, kStates);
  } else {
    for (int64_t i = at; i < of.elements; ++i) {
      UpdateAt<1>(update, decay, gradient_factor, i, of, kStates);
    }
  }
}

template <typename Update>
cudaError_t Run(cudaStream_t stream, const Update& update, const OptimizerStep& step,
                std::span<const OptimizedArrays> tensors) {
  static_assert(sizeof(Update) + 2 * sizeof(float) <= kOtherArgumentBytes);
  return ForBatches(tensors, kBlockElements, [&](const TensorBatch<OptimizedArrays>& batch) {
    UpdateKernel<<<batch.blocks, kThreads, 0, stream>>>(update, step.weight_decay,
                                                        step.gradient_factor, batch);
    return cudaGetLastError();
  });
}

}  // namespace

cudaError_t UpdateParameters(cudaStream_t stream, const OptimizerRule& optimizer,
                             const OptimizerStep& step, std::span<const OptimizedArrays> tensors) {
  return WithUpdate(optimizer, step,
                    [&](const auto& update) { return Run(stream, update, step, tensors); });
}

}  // namespace lockstep::cuda
