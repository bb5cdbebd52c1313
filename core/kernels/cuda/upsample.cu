#include "core/kernels/cuda/elements.cuh"
#include "core/kernels/cuda/for_each.cuh"
#include "core/kernels/cuda/upsample.h"

namespace lockstep::cuda {
namespace {

// The element of the large images at row 2 r + down, column 2 c + right of what is element i, at
// row r and column c, of the small ones.
__device__ int64_t Doubled(const Images& small, int64_t i, int down, int right) {
  const int64_t channel = i % small.channels, pixel = i / small.channels;
  const int64_t column = pixel % small.width, row = pixel / small.width;  // over all images
  return ((2 * row + down) * 2 * small.width + 2 * column + right) * small.channels + channel;
}

struct UpsampleOne {
  Images small;
  Array x, y;
  __device__ void operator()(int64_t i) const {
    const float value = LoadOne(x, i);
    for (int down = 0; down < 2; ++down) {
      for (int right = 0; right < 2; ++right) StoreOne(y, Doubled(small, i, down, right), value);
    }
  }
};

struct UpsampleBackwardOne {
  Images small;
  Array dy, dx;
  __device__ void operator()(int64_t i) const {
    const float above = LoadOne(dy, Doubled(small, i, 0, 0)) + LoadOne(dy, Doubled(small, i, 0, 1));
    const float below = LoadOne(dy, Doubled(small, i, 1, 0)) + LoadOne(dy, Doubled(small, i, 1, 1));
    StoreOne(dx, i, above + below);
  }
};

int64_t Elements(const Images& p) { return p.batch * p.height * p.width * p.channels; }

}  // namespace

cudaError_t Upsample(cudaStream_t stream, Images small, Array x, Array y) {
  return ForEach(stream, Elements(small), UpsampleOne{small, x, y});
}

cudaError_t UpsampleBackward(cudaStream_t stream, Images small, Array dy, Array dx) {
  return ForEach(stream, Elements(small), UpsampleBackwardOne{small, dy, dx});
}

}  // namespace lockstep::cuda
