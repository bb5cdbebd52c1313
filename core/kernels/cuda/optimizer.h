// The loop that optimizers' updates run in: one pass over memory for all tensors together; dtypes
// as in core/kernels/kernels.h.

#pragma once

#include <cstdint>
#include <span>

#include "core/kernels/cuda/array.h"
#include "core/kernels/optimizers/registry.h"
#include "cuda_runtime_api.h"

namespace lockstep::cuda {

// What a step updates of one parameter.
struct OptimizedArrays {
  int64_t elements;
  Array gradient;
  float* parameter;
  float* states[kMostOptimizerStates];  // those that the optimizer has
  Array copy;                           // or null
  bool decays;
};

cudaError_t UpdateParameters(cudaStream_t stream, const OptimizerRule& optimizer,
                             const OptimizerStep& step, std::span<const OptimizedArrays> tensors);

}  // namespace lockstep::cuda
