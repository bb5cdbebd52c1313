// Batch normalisation over the columns of [rows, width]; shapes and dtypes as in
// core/kernels/kernels.h.

#pragma once

#include <cstdint>

#include "core/kernels/cuda/array.h"
#include "core/kernels/options.h"
#include "cuda_runtime_api.h"

namespace lockstep::cuda {

// Mean and biased variance of each column; scratch: ColumnScratch(width) (column_sums.h); rows > 0.
cudaError_t BatchStatistics(cudaStream_t stream, int64_t rows, int64_t width, Array x,
                            double* scratch, float* mean, float* variance);

// y = activation((x - mean) * inverse_stddev * scale + shift + residual), residual null or not.
// factors: scratch, [2, width].
cudaError_t Normalize(cudaStream_t stream, int64_t rows, int64_t width, Array x, Array scale,
                      Array shift, Array residual, const float* mean, const float* variance,
                      float epsilon, Activation activation, float* factors, Array y);

struct BatchNormInputs {
  int64_t rows, width;
  Array x, scale;
  const float* mean;
  const float* variance;
  float epsilon;
};
// dy is the gradient behind the activation. sums[0][width]: of scale's gradient, sums[1][width]: of
// shift's; scratch: 2 * kRowParts * width doubles; rows > 0.
cudaError_t BatchNormSums(cudaStream_t stream, BatchNormInputs inputs, Array dy, double* scratch,
                          double* sums);
// dx from what BatchNormSums has found; dx may be dy. factors: scratch, [3, width].
cudaError_t BatchNormInputGradient(cudaStream_t stream, BatchNormInputs inputs, Array dy,
                                   const double* sums, float* factors, Array dx);

// As Kernels has them; sums: [3, channels].
cudaError_t AddStatistics(cudaStream_t stream, int64_t channels, const float* mean,
                          const float* variance, float weight, Write write, float* sums);
cudaError_t UpdateRunningStatistics(cudaStream_t stream, int64_t channels, const float* sums,
                                    double weight, int64_t rows, float momentum,
                                    float* running_mean, float* running_variance);

}  // namespace lockstep::cuda
