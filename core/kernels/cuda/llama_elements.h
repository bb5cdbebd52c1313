// What a block of a Llama computes element by element; shapes and dtypes as in
// core/kernels/kernels.h.

#pragma once

#include <cstdint>

#include "core/kernels/cuda/array.h"
#include "core/kernels/options.h"
#include "cuda_runtime_api.h"

namespace lockstep::cuda {

// x: [rows, 2 * hidden], y and dy: [rows, hidden].
cudaError_t SwiGlu(cudaStream_t stream, int64_t rows, int64_t hidden, Array x, Array y);
cudaError_t SwiGluBackward(cudaStream_t stream, int64_t rows, int64_t hidden, Array x, Array dy,
                           Array dx);

// x, y: [rows, width], of which the heads are the first columns; y may be x.
cudaError_t Rotate(cudaStream_t stream, Rotation rotation, int64_t rows, int64_t width, Array x,
                   const int32_t* positions, const float* table, Array y);

}  // namespace lockstep::cuda
