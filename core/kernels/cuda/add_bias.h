// What follows the sum over ranks of a linear layer that they compute together.

#pragma once

#include <cstdint>

#include "core/kernels/cuda/array.h"
#include "cuda_runtime_api.h"

namespace lockstep::cuda {

// y[rows, width] = x + bias[width] + residual[rows, width]; bias or residual may be null, y be x.
cudaError_t AddBias(cudaStream_t stream, int64_t rows, int64_t width, Array x, Array bias,
                    Array residual, Array y);

}  // namespace lockstep::cuda
