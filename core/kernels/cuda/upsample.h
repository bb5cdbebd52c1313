// Images of twice the size, [batch, height, width, channels]; as in core/kernels/kernels.h.

#pragma once

#include "core/kernels/cuda/array.h"
#include "core/kernels/cuda/images.h"
#include "cuda_runtime_api.h"

namespace lockstep::cuda {

// `small`: of x and dx; y and dy have twice its height and width.
cudaError_t Upsample(cudaStream_t stream, Images small, Array x, Array y);
cudaError_t UpsampleBackward(cudaStream_t stream, Images small, Array dy, Array dx);

}  // namespace lockstep::cuda
