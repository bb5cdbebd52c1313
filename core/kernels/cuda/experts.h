// Mixtures of experts: which rows go to which experts, and the way back; shapes and dtypes as in
// core/kernels/kernels.h.

#pragma once

#include <cstdint>

#include "core/kernels/cuda/array.h"
#include "core/kernels/options.h"
#include "cuda_runtime_api.h"

namespace lockstep::cuda {

// bias: null for none.
cudaError_t Route(cudaStream_t stream, Routing routing, int64_t rows, Array logits,
                  const float* bias, int32_t* chosen, float* weights);
// balance: null for none.
cudaError_t RouteBackward(cudaStream_t stream, Routing routing, int64_t rows, Array logits,
                          const int32_t* chosen, const float* dweights, const float* balance,
                          Array dlogits);

// Where the rows of x go: sums have `rows` rows of `width` elements, with `slots` places each.
struct CombinedRows {
  int64_t rows, slots, width;
  const int32_t* places;
  const float* weights;  // null: 1
};
// residual: null for none.
cudaError_t CombineRows(cudaStream_t stream, CombinedRows combined, Array x, Array residual,
                        Array sums);
// dweights: null where it is not wanted.
cudaError_t CombineRowsBackward(cudaStream_t stream, CombinedRows combined, Array dsums, Array x,
                                Array dx, float* dweights);

}  // namespace lockstep::cuda
