// The optimizers' updates, one pass over memory each; dtypes as in core/kernels/kernels.h.

#pragma once

#include <cstdint>

#include "core/kernels/cuda/array.h"
#include "cuda_runtime_api.h"

namespace lockstep::cuda {

struct AdamWFactors {
  float gradient, beta1, beta2, epsilon;
  float rate;  // with the first moment's bias correction
  float root;  // the second's: its square root is multiplied by this
  float keep;  // what weight decay leaves of the parameter
};
cudaError_t AdamWStep(cudaStream_t stream, int64_t elements, AdamWFactors factors, Array gradient,
                      float* parameter, float* first_moment, float* second_moment, Array copy);

struct SgdFactors {
  float gradient, rate, decay;
  float momentum;       // of the buffer
  float slope, buffer;  // what the step takes of either
};
// `momentum` may be null.
cudaError_t SgdStep(cudaStream_t stream, int64_t elements, SgdFactors factors, Array gradient,
                    float* parameter, float* momentum, Array copy);

}  // namespace lockstep::cuda
