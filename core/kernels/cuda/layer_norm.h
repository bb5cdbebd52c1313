// Layer normalisation; shapes and dtypes as in core/kernels/kernels.h.

#pragma once

#include <cstdint>

#include "core/kernels/cuda/array.h"
#include "core/kernels/options.h"
#include "cuda_runtime_api.h"

namespace lockstep::cuda {

cudaError_t LayerNorm(cudaStream_t stream, int64_t rows, int64_t width, Array x, Array scale,
                      Array shift, float epsilon, Array y, float* mean, float* inverse_stddev);

// What the gradients need of forward.
struct LayerNormInputs {
  int64_t rows, width;
  Array x, scale;
  const float* mean;
  const float* inverse_stddev;
  Array dy;
};
// dx = the gradient + residual, which may be null, or dx.
cudaError_t LayerNormInputGradient(cudaStream_t stream, LayerNormInputs inputs, Array residual,
                                   Array dx);
// sums[0][width]: of scale's gradient, sums[1][width]: of shift's, behind 2 * kRowParts * width
// doubles of scratch (column_sums.h).
cudaError_t LayerNormSums(cudaStream_t stream, LayerNormInputs inputs, double* scratch,
                          double* sums);

}  // namespace lockstep::cuda
