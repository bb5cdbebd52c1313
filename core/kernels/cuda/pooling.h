// Pooling and its opposite over [batch, height, width, channels]; as in core/kernels/kernels.h.

#pragma once

#include <cstdint>

#include "core/kernels/cuda/array.h"
#include "core/kernels/options.h"
#include "cuda_runtime_api.h"

namespace lockstep::cuda {

struct Pictures {
  int64_t batch, height, width, channels;
};

// y: [batch, out_height, out_width, channels], argmax shaped as y.
cudaError_t MaxPool(cudaStream_t stream, Pictures pictures, Array x, Window window,
                    int64_t out_height, int64_t out_width, Array y, int32_t* argmax);
// dx[batch, pixels, channels] += dy[batch, out_pixels, channels] where the maxima were: dx, fp32,
// in the order of dy.
cudaError_t MaxPoolBackward(cudaStream_t stream, int64_t batch, int64_t channels, int64_t pixels,
                            int64_t out_pixels, Array dy, const int32_t* argmax, float* dx);
cudaError_t GlobalAveragePool(cudaStream_t stream, int64_t batch, int64_t pixels, int64_t channels,
                              Array x, Array y);
cudaError_t GlobalAveragePoolBackward(cudaStream_t stream, int64_t batch, int64_t pixels,
                                      int64_t channels, Array dy, Array dx);
// `small`: of x and dx; y and dy have twice its height and width.
cudaError_t Upsample(cudaStream_t stream, Pictures small, Array x, Array y);
cudaError_t UpsampleBackward(cudaStream_t stream, Pictures small, Array dy, Array dx);

}  // namespace lockstep::cuda
