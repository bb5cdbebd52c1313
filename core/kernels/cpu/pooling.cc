// Pooling and its opposite.

#include <algorithm>
#include <cstddef>
#include <cstring>  // std::memcpy
#include <utility>  // std::exchange
#include <vector>

#include "core/base/parallel.h"
#include "core/kernels/cpu/cpu_kernels.h"
#include "core/kernels/cpu/float_elements.h"
#include "core/kernels/cpu/span.h"
#include "core/kernels/cpu/wide.h"
#include "glog/logging.h"

namespace lockstep {
namespace {

// Calls f(row * width + column) for the pixels of a pooling window, in their order: the window
// whose result is at (out_row, out_column).
template <typename Function>
void ForPixels(const Window& window, int64_t height, int64_t width, int64_t out_row,
               int64_t out_column, Function&& f) {
  const int64_t top = out_row * window.stride - window.padding;
  const int64_t left = out_column * window.stride - window.padding;
  const int64_t bottom = std::min(top + window.kernel, height);
  const int64_t right = std::min(left + window.kernel, width);
  for (int64_t row = std::max<int64_t>(top, 0); row < bottom; ++row) {
    for (int64_t column = std::max<int64_t>(left, 0); column < right; ++column) {
      f(row * width + column);
    }
  }
}

void CheckUpsampled(const Shape& small, const Shape& large) {
  CHECK_EQ(large, Shape({small[0], 2 * small[1], 2 * small[2], small[3]}));
}

}  // namespace

void CpuKernels::MaxPool(const Tensor& x, const Window& window, const Tensor& y) {
  Span span(this, {x}, {y});
  if (!cpu::AllF32({&x})) {
    cpu::WideOutput wide(*this, y);
    MaxPool(cpu::Wide(*this, x), window, wide.tensor());
    return wide.Round();
  }
  const int64_t height = x.shape()[1], width = x.shape()[2], channels = x.shape()[3];
  const int64_t out_height = y.shape()[1], out_width = y.shape()[2];
  ParallelFor(y.shape()[0] * out_height, 4, [&](int64_t begin, int64_t end) {
    for (int64_t line = begin; line < end; ++line) {
      const float* in = x.data<float>() + line / out_height * height * width * channels;
      for (int64_t ox = 0; ox < out_width; ++ox) {
        float* best = y.data<float>() + (line * out_width + ox) * channels;
        bool first = true;
        ForPixels(window, height, width, line % out_height, ox, [&](int64_t pixel) {
          const float* values = in + pixel * channels;
          if (std::exchange(first, false)) {
            std::copy_n(values, channels, best);
            return;
          }
          for (int64_t c = 0; c < channels; ++c) {
            const bool larger = values[c] > best[c] || values[c] != values[c];  // NaN passes
            best[c] = larger ? values[c] : best[c];
          }
        });
      }
    }
  });
}

void CpuKernels::MaxPoolBackward(const Tensor& x, const Window& window, const Tensor& y,
                                 const Tensor& dy, const Tensor& dx) {
  Span span(this, {x, y, dy}, {dx});
  if (!cpu::AllF32({&dy})) {
    cpu::WideOutput wide(*this, dx);
    MaxPoolBackward(cpu::Wide(*this, x), window, cpu::Wide(*this, y), cpu::Wide(*this, dy),
                    wide.tensor());
    return wide.Round();
  }
  const int64_t height = x.shape()[1], width = x.shape()[2], channels = x.shape()[3];
  const int64_t out_height = y.shape()[1], out_width = y.shape()[2];
  // Windows overlap: an image belongs to one thread.
  ParallelFor(x.shape()[0], 1, [&](int64_t begin, int64_t end) {
    std::vector<float> slopes(channels);  // what has not found its element yet
    for (int64_t image = begin; image < end; ++image) {
      const float* in = x.data<float>() + image * height * width * channels;
      float* to = dx.data<float>() + image * height * width * channels;
      std::fill_n(to, height * width * channels, 0.0f);
      for (int64_t i = 0; i < out_height * out_width; ++i) {
        const int64_t at = (image * out_height * out_width + i) * channels;
        const float* best = y.data<float>() + at;
        float* rest = slopes.data();
        std::copy_n(dy.data<float>() + at, channels, rest);
        ForPixels(window, height, width, i / out_width, i % out_width, [&](int64_t pixel) {
          const float* values = in + pixel * channels;
          float* sums = to + pixel * channels;
          for (int64_t c = 0; c < channels; ++c) {
            const bool found = values[c] == best[c] || values[c] != values[c];
            sums[c] += found ? rest[c] : 0;
            rest[c] = found ? 0 : rest[c];
          }
        });
      }
    }
  });
}

void CpuKernels::GlobalAveragePool(const Tensor& x, const Tensor& y) {
  Span span(this, {x}, {y});
  if (!cpu::AllF32({&x})) {
    cpu::WideOutput wide(*this, y);
    GlobalAveragePool(cpu::Wide(*this, x), wide.tensor());
    return wide.Round();
  }
  const int64_t channels = x.shape()[3], pixels = x.shape()[1] * x.shape()[2];
  ParallelFor(x.shape()[0], 1, [&](int64_t begin, int64_t end) {
    for (int64_t image = begin; image < end; ++image) {
      float* mean = y.data<float>() + image * channels;
      const float* in = x.data<float>() + image * pixels * channels;
      std::fill_n(mean, channels, 0.0f);
      for (int64_t p = 0; p < pixels; ++p) {
        for (int64_t c = 0; c < channels; ++c) mean[c] += in[p * channels + c];
      }
      for (int64_t c = 0; c < channels; ++c) mean[c] /= static_cast<float>(pixels);
    }
  });
}

void CpuKernels::GlobalAveragePoolBackward(const Tensor& dy, const Tensor& dx) {
  Span span(this, {dy}, {dx});
  if (!cpu::AllF32({&dy})) {
    cpu::WideOutput wide(*this, dx);
    GlobalAveragePoolBackward(cpu::Wide(*this, dy), wide.tensor());
    return wide.Round();
  }
  const int64_t channels = dx.shape()[3], pixels = dx.shape()[1] * dx.shape()[2];
  ParallelFor(dx.shape()[0], 1, [&](int64_t begin, int64_t end) {
    for (int64_t image = begin; image < end; ++image) {
      const float* from = dy.data<float>() + image * channels;
      float* to = dx.data<float>() + image * pixels * channels;
      for (int64_t p = 0; p < pixels; ++p) {
        for (int64_t c = 0; c < channels; ++c) {
          to[p * channels + c] = from[c] / static_cast<float>(pixels);
        }
      }
    }
  });
}

void CpuKernels::Upsample(const Tensor& x, const Tensor& y) {
  Span span(this, {x}, {y});
  CheckUpsampled(x.shape(), y.shape());
  const int64_t width = x.shape()[2], pixel = x.shape()[3] * SizeOf(x.dtype());
  ParallelFor(x.shape()[0] * x.shape()[1], 4, [&](int64_t begin, int64_t end) {
    for (int64_t line = begin; line < end; ++line) {
      const std::byte* from = x.raw() + line * width * pixel;
      std::byte* upper = y.raw() + 4 * line * width * pixel;
      for (int64_t i = 0; i < width; ++i) {
        std::memcpy(upper + 2 * i * pixel, from + i * pixel, pixel);
        std::memcpy(upper + (2 * i + 1) * pixel, from + i * pixel, pixel);
      }
      std::memcpy(upper + 2 * width * pixel, upper, 2 * width * pixel);
    }
  });
}

void CpuKernels::UpsampleBackward(const Tensor& dy, const Tensor& dx) {
  Span span(this, {dy}, {dx});
  CheckUpsampled(dx.shape(), dy.shape());
  const int64_t channels = dx.shape()[3], line = dx.shape()[2] * channels;
  ParallelFor(dx.shape()[0] * dx.shape()[1], 4, [&](int64_t begin, int64_t end) {
    cpu::FloatInput upper(dy, 2 * line), lower(dy, 2 * line);
    cpu::FloatOutput output(dx, line);
    for (int64_t i = begin; i < end; ++i) {
      const float* above = upper.Load(4 * i * line, 2 * line);
      const float* below = lower.Load((4 * i + 2) * line, 2 * line);
      float* to = output.Open(i * line, line);
      for (int64_t at = 0; at < line; at += channels) {
        const int64_t left = 2 * at, right = left + channels;
        for (int64_t c = 0; c < channels; ++c) {
          to[at + c] = (above[left + c] + above[right + c]) + (below[left + c] + below[right + c]);
        }
      }
      output.Close();
    }
  });
}

}  // namespace lockstep
