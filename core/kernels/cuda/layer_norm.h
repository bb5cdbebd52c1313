// Layer normalisation; shapes and dtypes as in core/kernels/kernels.h: all arrays of a call have
// one dtype.

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
// LayerNormInputGradient and LayerNormSums at once, with the bits of both: x and dy are read once
// where rows are a multiple of 8 and at most 2,048 elements wide (1,024 in fp32), and there are no
// more than 262,144 of them. Other calls make two passes.
//
// The order of the sums: rows are cut into chunks, at most kRowParts of them, by their number
// alone. In a chunk, every eighth row is added in fp32, these sums in double, and then chunks in
// double: no sum depends on which block comes first, nor on the number of multiprocessors.
cudaError_t LayerNormGradients(cudaStream_t stream, LayerNormInputs inputs, Array residual,
                               Array dx, double* scratch, double* sums);

}  // namespace lockstep::cuda
