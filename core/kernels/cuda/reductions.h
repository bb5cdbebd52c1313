// Sums over all elements, in an order that depends on their number alone.

#pragma once

#include <cstdint>

#include "core/kernels/cuda/array.h"
#include "core/kernels/options.h"
#include "cuda_runtime_api.h"

namespace lockstep::cuda {

// Partial results of a reduction, the most that there are of each.
inline constexpr int64_t kPartials = 1024;

// sum[0] = the sum in double. partial: [kPartials].
cudaError_t Sum(cudaStream_t stream, int64_t elements, const float* x, double* partial,
                double* sum);

// largest[0] = the bits of the largest magnitude as fp32, of NaN above those of infinity. partial:
// [kPartials].
cudaError_t MaxMagnitude(cudaStream_t stream, int64_t elements, Array x, uint32_t* partial,
                         uint32_t* largest);

// What cuts a square into the bins of SquareSum: adding and subtracting middle[i] rounds to a
// multiple of bin i's unit.
struct SquareBins {
  double middle[3];
};

// sums: [3]; partial: [3 * kPartials].
cudaError_t SumOfSquares(cudaStream_t stream, int64_t elements, Array x, SquareBins bins,
                         double* partial, double* sums);

}  // namespace lockstep::cuda
