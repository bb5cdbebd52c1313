// Root mean square normalisation of rows; shapes and dtypes as in core/kernels/kernels.h.

#pragma once

#include <cstdint>

#include "core/kernels/cuda/array.h"
#include "cuda_runtime_api.h"

namespace lockstep::cuda {

cudaError_t RmsNorm(cudaStream_t stream, int64_t rows, int64_t width, Array x, Array scale,
                    float epsilon, Array y, float* inverse_rms);

// What the gradients need of forward.
struct RmsNormInputs {
  int64_t rows, width;
  Array x, scale;
  const float* inverse_rms;
  Array dy;
};
// dx = the gradient + residual, which may be null, or dx.
cudaError_t RmsNormInputGradient(cudaStream_t stream, RmsNormInputs inputs, Array residual,
                                 Array dx);
// sums[width]: of scale's gradient; scratch: kRowParts * width doubles (column_sums.h).
cudaError_t RmsNormSums(cudaStream_t stream, RmsNormInputs inputs, double* scratch, double* sums);

}  // namespace lockstep::cuda
