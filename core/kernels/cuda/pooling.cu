#include "core/kernels/cuda/elements.cuh"
#include "core/kernels/cuda/for_each.cuh"
#include "core/kernels/cuda/pooling.h"

namespace lockstep::cuda {
namespace {

int64_t Elements(const Images& p) { return p.batch * p.height * p.width * p.channels; }

// Where kCount neighbouring channels of a pixel lie, of which a thread has one group.
struct Pixel {
  int64_t image, row, column, channel;

  template <int kCount>
  __device__ static Pixel Of(const Images& images, int64_t group) {
    const int64_t groups = images.channels / kCount, pixel = group / groups;
    const int64_t line = pixel / images.width;  // over all images
    return {line / images.height, line % images.height, pixel % images.width,
            group % groups * kCount};
  }
};

__device__ int64_t At(const Images& images, const Pixel& p) {
  return ((p.image * images.height + p.row) * images.width + p.column) * images.channels +
         p.channel;
}

// The maxima of kCount channels in one window, and where the first of equal ones stands in it.
template <int kCount>
struct Maxima {
  float value[kCount];
  int place[kCount];
};

template <int kCount>
__device__ Maxima<kCount> MaximaOf(const Pooling& pooling, const Array& x, const Pixel& out) {
  Maxima<kCount> maxima = {};
  const int64_t top = out.row * pooling.stride - pooling.padding;
  const int64_t left = out.column * pooling.stride - pooling.padding;
  bool is_first = true;
  for (int i = 0; i < pooling.kernel; ++i) {
    for (int j = 0; j < pooling.kernel; ++j) {
      const Pixel from = {out.image, top + i, left + j, out.channel};
      if (from.row < 0 || from.row >= pooling.in.height || from.column < 0 ||
          from.column >= pooling.in.width) {
        continue;
      }
      float values[kCount];
      Load(x, At(pooling.in, from), values);
      for (int c = 0; c < kCount; ++c) {
        const bool is_nan = values[c] != values[c];
        const bool has_nan = maxima.value[c] != maxima.value[c];
        if (is_first || values[c] > maxima.value[c] || (is_nan && !has_nan)) {
          maxima.value[c] = values[c];
          maxima.place[c] = i * pooling.kernel + j;
        }
      }
      is_first = false;
    }
  }
  return maxima;
}

template <int kCount>
struct MaxPoolGroup {
  Pooling pooling;
  Array x, y;
  __device__ void operator()(int64_t group) const {
    const Pixel out = Pixel::Of<kCount>(pooling.out, group);
    const Maxima<kCount> maxima = MaximaOf<kCount>(pooling, x, out);
    Store(y, At(pooling.out, out), maxima.value);
  }
};

template <int kCount>
struct PlacesGroup {
  Pooling pooling;
  Array x;
  uint8_t* places;
  __device__ void operator()(int64_t group) const {
    const Pixel out = Pixel::Of<kCount>(pooling.out, group);
    const Maxima<kCount> maxima = MaximaOf<kCount>(pooling, x, out);
    const int64_t at = At(pooling.out, out);
    for (int c = 0; c < kCount; ++c) places[at + c] = static_cast<uint8_t>(maxima.place[c]);
  }
};

// The windows along one axis that see an extent's element `at`: first to last.
struct Windows {
  int64_t first, last;

  __device__ Windows(const Pooling& pooling, int64_t at, int64_t outputs) {
    const int64_t padded = at + pooling.padding, before = padded - pooling.kernel;
    first = before < 0 ? 0 : before / pooling.stride + 1;
    last = padded / pooling.stride;
    if (last >= outputs) last = outputs - 1;
  }
};

template <int kCount>
struct MaxPoolBackwardGroup {
  Pooling pooling;
  const uint8_t* places;
  Array dy, dx;
  __device__ void operator()(int64_t group) const {
    const Pixel in = Pixel::Of<kCount>(pooling.in, group);
    const Windows rows(pooling, in.row, pooling.out.height);
    const Windows columns(pooling, in.column, pooling.out.width);
    float sums[kCount] = {};
    for (int64_t row = rows.first; row <= rows.last; ++row) {
      const int64_t i = in.row + pooling.padding - row * pooling.stride;
      for (int64_t column = columns.first; column <= columns.last; ++column) {
        const int64_t j = in.column + pooling.padding - column * pooling.stride;
        const int64_t at = At(pooling.out, {in.image, row, column, in.channel});
        float slopes[kCount];
        Load(dy, at, slopes);
        for (int c = 0; c < kCount; ++c) {
          if (places[at + c] == i * pooling.kernel + j) sums[c] += slopes[c];
        }
      }
    }
    Store(dx, At(pooling.in, in), sums);
  }
};

struct AverageOne {
  Images images;
  Array x, y;
  __device__ void operator()(int64_t i) const {
    const int64_t pixels = images.height * images.width, channel = i % images.channels;
    const int64_t first = i / images.channels * pixels * images.channels + channel;
    float sum = 0;
    for (int64_t p = 0; p < pixels; ++p) sum += LoadOne(x, first + p * images.channels);
    StoreOne(y, i, sum / static_cast<float>(pixels));
  }
};

struct AverageBackwardOne {
  Images images;
  Array dy, dx;
  __device__ void operator()(int64_t i) const {
    const int64_t pixels = images.height * images.width;
    const int64_t image = i / images.channels / pixels;
    const float slope = LoadOne(dy, image * images.channels + i % images.channels);
    StoreOne(dx, i, slope / static_cast<float>(pixels));
  }
};

template <template <int> typename Group, typename... Arguments>
cudaError_t ForGroups(cudaStream_t stream, const Images& images, const Arguments&... arguments) {
  const int64_t elements = Elements(images);
  if (images.channels % kVector == 0) {
    return ForEach(stream, elements / kVector, Group<kVector>{arguments...});
  }
  return ForEach(stream, elements, Group<1>{arguments...});
}

}  // namespace

cudaError_t MaxPool(cudaStream_t stream, const Pooling& pooling, Array x, Array y) {
  return ForGroups<MaxPoolGroup>(stream, pooling.out, pooling, x, y);
}

cudaError_t MaxPoolBackward(cudaStream_t stream, const Pooling& pooling, Array x, uint8_t* places,
                            Array dy, Array dx) {
  const cudaError_t error = ForGroups<PlacesGroup>(stream, pooling.out, pooling, x, places);
  if (error != cudaSuccess) return error;
  return ForGroups<MaxPoolBackwardGroup>(stream, pooling.in, pooling, places, dy, dx);
}

cudaError_t GlobalAveragePool(cudaStream_t stream, Images images, Array x, Array y) {
  return ForEach(stream, images.batch * images.channels, AverageOne{images, x, y});
}

cudaError_t GlobalAveragePoolBackward(cudaStream_t stream, Images images, Array dy, Array dx) {
  return ForEach(stream, Elements(images), AverageBackwardOne{images, dy, dx});
}

}  // namespace lockstep::cuda
