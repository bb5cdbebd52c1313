// What batch normalisation knows of each channel; as in core/kernels/kernels.h.

#pragma once

#include <cstdint>

#include "core/kernels/options.h"
#include "cuda_runtime_api.h"

namespace lockstep::cuda {

// Between variances and 1 / sqrt(variance + epsilon); both may be the same memory.
cudaError_t InverseStddevs(cudaStream_t stream, int64_t channels, const float* variances,
                           float epsilon, float* inverse_stddevs);
cudaError_t Variances(cudaStream_t stream, int64_t channels, const float* inverse_stddevs,
                      float epsilon, float* variances);

// As Kernels has them; sums: [3, channels], or without `has_squares` [2, channels].
cudaError_t AddStatistics(cudaStream_t stream, int64_t channels, const float* mean,
                          const float* variance, float weight, Write write, float* sums);
cudaError_t UpdateRunningStatistics(cudaStream_t stream, int64_t channels, const float* sums,
                                    bool has_squares, double weight, int64_t rows, float momentum,
                                    float* running_mean, float* running_variance);

}  // namespace lockstep::cuda
