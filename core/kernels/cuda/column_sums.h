// The gradient of what was added to every row: a bias.

#pragma once

#include <cstdint>

#include "core/kernels/cuda/array.h"
#include "core/kernels/options.h"
#include "cuda_runtime_api.h"

namespace lockstep::cuda {

// The most chunks that rows are cut into.
inline constexpr int64_t kRowParts = 512;

// Doubles of scratch that two sums a column need: those of the chunks, then the sums, [2, width].
inline int64_t ColumnScratch(int64_t width) { return 2 * (kRowParts + 1) * width; }

// sums[width] (+)= the column sums of x[rows, width].
cudaError_t ColumnSums(cudaStream_t stream, int64_t rows, int64_t width, Array x, double* scratch,
                       Write write, Array sums);

// gradient[width] (+)= sums[width]
cudaError_t WriteSums(cudaStream_t stream, int64_t width, const double* sums, Write write,
                      Array gradient);

}  // namespace lockstep::cuda
