// The optimizers' updates, one pass over memory for all tensors together; dtypes as in
// core/kernels/kernels.h.

#pragma once

#include <cstdint>
#include <span>

#include "core/kernels/cuda/array.h"
#include "cuda_runtime_api.h"

namespace lockstep::cuda {

// What a step updates of one parameter.
struct OptimizedArrays {
  int64_t elements;
  Array gradient;
  float* parameter;
  float* states[2];  // AdamW's moments, SGD's momentum buffer and null, or null
  Array copy;        // or null
  bool decays;
};

struct AdamWFactors {
  float gradient, beta1, beta2, epsilon;
  float rate;  // with the first moment's bias correction
  float root;  // the second's: its square root is multiplied by this
  float keep;  // what weight decay leaves of a parameter that decays
};
cudaError_t AdamWStep(cudaStream_t stream, AdamWFactors factors,
                      std::span<const OptimizedArrays> tensors);

struct SgdFactors {
  float gradient, rate;
  float decay;          // of parameters that decay
  float momentum;       // of the buffer; 0: there is none
  float slope, buffer;  // what the step takes of either
};
cudaError_t SgdStep(cudaStream_t stream, SgdFactors factors,
                    std::span<const OptimizedArrays> tensors);

}  // namespace lockstep::cuda
