// Reductions of all elements of one tensor, or of many in one launch, in an order that depends on
// their sizes alone.

#pragma once

#include <cstdint>
#include <span>

#include "core/kernels/cuda/array.h"
#include "core/kernels/options.h"
#include "cuda_runtime_api.h"

namespace lockstep::cuda {

struct ReducedArray {
  int64_t elements;
  Array x;
};

// How many partial results their reduction has.
int64_t PartialsOf(std::span<const ReducedArray> tensors);

// largest[0] = the bits of the largest magnitude as fp32, of NaN above those of infinity; 0 of
// none. partial: [PartialsOf].
cudaError_t MaxMagnitude(cudaStream_t stream, std::span<const ReducedArray> tensors,
                         uint32_t* partial, uint32_t* largest);

// What cuts a square into the bins of SquareSum: adding and subtracting middle[i] rounds to a
// multiple of bin i's unit.
struct SquareBins {
  double middle[3];
};

// sums: [3]; partial: [3 * PartialsOf].
cudaError_t SumOfSquares(cudaStream_t stream, std::span<const ReducedArray> tensors,
                         SquareBins bins, double* partial, double* sums);

}  // namespace lockstep::cuda
