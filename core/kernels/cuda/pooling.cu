#include "core/kernels/cuda/pooling.h"

#include "core/kernels/cuda/elements.cuh"

namespace lockstep::cuda {
namespace {

// Calls f(i) in a thread for each i below `count`.
template <typename Function>
__global__ void ForEachKernel(int64_t count, Function f) {
  const int64_t i = int64_t{blockIdx.x} * blockDim.x + threadIdx.x;
  if (i < count) f(i);
}

template <typename Function>
cudaError_t ForEach(cudaStream_t stream, int64_t count, Function f) {
  if (count == 0) return cudaSuccess;
  ForEachKernel<<<BlocksFor(count, kThreads), kThreads, 0, stream>>>(count, f);
  return cudaGetLastError();
}

struct MaxPoolOne {
  Pictures in;
  Array x;
  Window window;
  int64_t out_height, out_width;
  Array y;
  int32_t* argmax;

  __device__ void operator()(int64_t i) const {
    const int64_t channel = i % in.channels, pixel = i / in.channels;
    const int64_t left = pixel % out_width * window.stride - window.padding;
    const int64_t top = pixel / out_width % out_height * window.stride - window.padding;
    const int64_t picture = pixel / out_width / out_height * in.height * in.width * in.channels;
    // From the window's first pixel on, so that one of its own wins whatever they hold.
    const int64_t first =
        ((top > 0 ? top : 0) * in.width + (left > 0 ? left : 0)) * in.channels + channel;
    float best = LoadOne(x, picture + first);
    int64_t where = first;
    for (int64_t row = top; row < top + window.kernel; ++row) {
      if (row < 0 || row >= in.height) continue;
      for (int64_t column = left; column < left + window.kernel; ++column) {
        if (column < 0 || column >= in.width) continue;
        const int64_t at = (row * in.width + column) * in.channels + channel;
        const float value = LoadOne(x, picture + at);
        if (value > best || value != value) {  // NaN passes
          best = value;
          where = at;
        }
      }
    }
    StoreOne(y, i, best);
    argmax[i] = static_cast<int32_t>(where);
  }
};

// The maxima of a channel of a picture are all in that channel: a thread adds these in order.
struct MaxPoolBackwardChannel {
  int64_t channels, pixels, out_pixels;
  Array dy;
  const int32_t* argmax;
  float* dx;

  __device__ void operator()(int64_t i) const {
    const int64_t picture = i / channels, channel = i % channels;
    float* const to = dx + picture * pixels * channels;
    for (int64_t p = 0; p < out_pixels; ++p) {
      const int64_t from = (picture * out_pixels + p) * channels + channel;
      to[argmax[from]] += LoadOne(dy, from);
    }
  }
};

struct AverageOne {
  int64_t pixels, channels;
  Array x, y;
  __device__ void operator()(int64_t i) const {
    const int64_t first = i / channels * pixels * channels + i % channels;
    float sum = 0;
    for (int64_t p = 0; p < pixels; ++p) sum += LoadOne(x, first + p * channels);
    StoreOne(y, i, sum / static_cast<float>(pixels));
  }
};

struct AverageBackwardOne {
  int64_t pixels, channels;
  Array dy, dx;
  __device__ void operator()(int64_t i) const {
    const int64_t picture = i / (pixels * channels), channel = i % channels;
    StoreOne(dx, i, LoadOne(dy, picture * channels + channel) / static_cast<float>(pixels));
  }
};

// The element of the large pictures at row 2 r + down, column 2 c + right of what is element i, at
// row r and column c, of the small ones.
__device__ int64_t Doubled(const Pictures& small, int64_t i, int down, int right) {
  const int64_t channel = i % small.channels, pixel = i / small.channels;
  const int64_t column = pixel % small.width, row = pixel / small.width;  // over all pictures
  return ((2 * row + down) * 2 * small.width + 2 * column + right) * small.channels + channel;
}

struct UpsampleOne {
  Pictures small;
  Array x, y;
  __device__ void operator()(int64_t i) const {
    const float value = LoadOne(x, i);
    for (int down = 0; down < 2; ++down) {
      for (int right = 0; right < 2; ++right) StoreOne(y, Doubled(small, i, down, right), value);
    }
  }
};

struct UpsampleBackwardOne {
  Pictures small;
  Array dy, dx;
  __device__ void operator()(int64_t i) const {
    const float above = LoadOne(dy, Doubled(small, i, 0, 0)) + LoadOne(dy, Doubled(small, i, 0, 1));
    const float below = LoadOne(dy, Doubled(small, i, 1, 0)) + LoadOne(dy, Doubled(small, i, 1, 1));
    StoreOne(dx, i, above + below);
  }
};

int64_t Elements(const Pictures& p) { return p.batch * p.height * p.width * p.channels; }

}  // namespace

cudaError_t MaxPool(cudaStream_t stream, Pictures pictures, Array x, Window window,
                    int64_t out_height, int64_t out_width, Array y, int32_t* argmax) {
  return ForEach(stream, pictures.batch * out_height * out_width * pictures.channels,
                 MaxPoolOne{pictures, x, window, out_height, out_width, y, argmax});
}

cudaError_t MaxPoolBackward(cudaStream_t stream, int64_t batch, int64_t channels, int64_t pixels,
                            int64_t out_pixels, Array dy, const int32_t* argmax, float* dx) {
  return ForEach(stream, batch * channels,
                 MaxPoolBackwardChannel{channels, pixels, out_pixels, dy, argmax, dx});
}

cudaError_t GlobalAveragePool(cudaStream_t stream, int64_t batch, int64_t pixels, int64_t channels,
                              Array x, Array y) {
  return ForEach(stream, batch * channels, AverageOne{pixels, channels, x, y});
}

cudaError_t GlobalAveragePoolBackward(cudaStream_t stream, int64_t batch, int64_t pixels,
                                      int64_t channels, Array dy, Array dx) {
  return ForEach(stream, batch * pixels * channels, AverageBackwardOne{pixels, channels, dy, dx});
}

cudaError_t Upsample(cudaStream_t stream, Pictures small, Array x, Array y) {
  return ForEach(stream, Elements(small), UpsampleOne{small, x, y});
}

cudaError_t UpsampleBackward(cudaStream_t stream, Pictures small, Array dy, Array dx) {
  return ForEach(stream, Elements(small), UpsampleBackwardOne{small, dy, dx});
}

}  // namespace lockstep::cuda
