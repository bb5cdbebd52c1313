// Pooling of images [batch, height, width, channels]; as in core/kernels/kernels.h. No element is
// written by two threads, so that results repeat their bits, and sums have the CPU's order.

#pragma once

#include <cstdint>

#include "core/kernels/cuda/array.h"
#include "core/kernels/cuda/images.h"
#include "cuda_runtime_api.h"

namespace lockstep::cuda {

// A square window that slides over the images `in` and gives the images `out`.
struct Pooling {
  Images in, out;
  int kernel, stride, padding;  // 0 <= padding < kernel <= kWidestPooling
};

// An element's place in its window is kept in 8 bits.
inline constexpr int kWidestPooling = 16;

// x: in, y: out. Padding never wins, and NaN always does.
cudaError_t MaxPool(cudaStream_t stream, const Pooling& pooling, Array x, Array y);

// x, dx: in, dy: out. The first element of a window that equals its maximum gets the gradient.
// places: scratch, an element for each of y.
cudaError_t MaxPoolBackward(cudaStream_t stream, const Pooling& pooling, Array x, uint8_t* places,
                            Array dy, Array dx);

// x, dx: images, y, dy: [batch, channels].
cudaError_t GlobalAveragePool(cudaStream_t stream, Images images, Array x, Array y);
cudaError_t GlobalAveragePoolBackward(cudaStream_t stream, Images images, Array dy, Array dx);

}  // namespace lockstep::cuda
