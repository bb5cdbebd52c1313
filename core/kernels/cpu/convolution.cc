// Convolutions on oneDNN; pooling and its opposite.

#include <algorithm>
#include <cstring>  // std::memcpy

#include "core/base/parallel.h"
#include "core/kernels/cpu/convolution_primitives.h"
#include "core/kernels/cpu/cpu_kernels.h"
#include "core/kernels/cpu/float_elements.h"
#include "core/kernels/cpu/span.h"
#include "core/kernels/cpu/wide.h"
#include "glog/logging.h"

namespace lockstep {

using Pass = cpu::ConvolutionPrimitives::Pass;

namespace {

void CheckUpsampled(const Shape& small, const Shape& large) {
  CHECK_EQ(large, Shape({small[0], 2 * small[1], 2 * small[2], small[3]}));
}

}  // namespace

void CpuKernels::Convolution(const Tensor& x, const Tensor& w, const Tensor& bias,
                             const Window& window, const Tensor& y) {
  Span span(this);
  CHECK_EQ(x.shape()[-1], w.shape()[-1]);
  CHECK_EQ(y.shape()[1], window.Output(x.shape()[1]));
  if (!MultipliesBf16(x) && !cpu::AllF32({&x})) {
    cpu::WideOutput wide(*this, y);
    Convolution(cpu::Wide(*this, x), cpu::Wide(*this, w), cpu::Wide(*this, bias), window,
                wide.tensor());
    return wide.Round();
  }
  convolutions_->Run(Pass::kForward, window, x, w, bias, y);
}

void CpuKernels::ConvolutionBackwardInput(const Tensor& dy, const Tensor& w, const Window& window,
                                          const Tensor& dx) {
  Span span(this);
  if (!MultipliesBf16(dy) && !cpu::AllF32({&dy})) {
    cpu::WideOutput wide(*this, dx);
    ConvolutionBackwardInput(cpu::Wide(*this, dy), cpu::Wide(*this, w), window, wide.tensor());
    return wide.Round();
  }
  convolutions_->Run(Pass::kBackwardInput, window, dx, w, Tensor(), dy);
}

void CpuKernels::ConvolutionBackwardWeight(const Tensor& dy, const Tensor& x, const Window& window,
                                           Write write, const Tensor& dw, const Tensor& dbias) {
  Span span(this);
  // The gradients are summed in fp32 whatever they are kept in.
  if (!cpu::AllF32({&dw, &dbias})) {
    cpu::WideOutput wide_dw(*this, dw, write), wide_dbias(*this, dbias, write);
    ConvolutionBackwardWeight(dy, x, window, write, wide_dw.tensor(), wide_dbias.tensor());
    wide_dw.Round();
    return wide_dbias.Round();
  }
  if (!MultipliesBf16(dy) && !cpu::AllF32({&dy})) {
    return ConvolutionBackwardWeight(cpu::Wide(*this, dy), cpu::Wide(*this, x), window, write, dw,
                                     dbias);
  }
  if (write == Write::kOverwrite) {
    convolutions_->Run(Pass::kBackwardWeight, window, x, dw, Tensor(), dy);
  } else {
    Tensor fresh = Workspace(dw.shape());
    convolutions_->Run(Pass::kBackwardWeight, window, x, fresh, Tensor(), dy);
    Add(dw, fresh, dw);
  }
  if (!dbias.defined()) return;
  const int64_t channels = dy.shape()[-1], rows = dy.shape().rows();
  float* sums = dbias.data<float>();
  if (write == Write::kOverwrite) std::fill_n(sums, channels, 0.0f);
  cpu::FloatInput gradient(dy, channels);
  for (int64_t r = 0; r < rows; ++r) {
    const float* row = gradient.Load(r * channels, channels);
    for (int64_t c = 0; c < channels; ++c) sums[c] += row[c];
  }
}

void CpuKernels::MaxPool(const Tensor& x, const Window& window, const Tensor& y,
                         const Tensor& argmax) {
  Span span(this);
  if (!cpu::AllF32({&x})) {
    cpu::WideOutput wide(*this, y);
    MaxPool(cpu::Wide(*this, x), window, wide.tensor(), argmax);
    return wide.Round();
  }
  const int64_t height = x.shape()[1], width = x.shape()[2], channels = x.shape()[3];
  const int64_t out_height = y.shape()[1], out_width = y.shape()[2];
  ParallelFor(y.shape()[0] * out_height, 4, [&](int64_t begin, int64_t end) {
    for (int64_t line = begin; line < end; ++line) {
      const int64_t picture = line / out_height,
                    top = line % out_height * window.stride - window.padding;
      const float* in = x.data<float>() + picture * height * width * channels;
      for (int64_t ox = 0; ox < out_width; ++ox) {
        const int64_t at = (line * out_width + ox) * channels;
        float* best = y.data<float>() + at;
        int32_t* where = argmax.data<int32_t>() + at;
        const int64_t left = ox * window.stride - window.padding;
        // From the window's first pixel on, so that one of its own wins whatever they hold.
        const int64_t first =
            (std::max<int64_t>(top, 0) * width + std::max<int64_t>(left, 0)) * channels;
        for (int64_t c = 0; c < channels; ++c) {
          best[c] = in[first + c];
          where[c] = static_cast<int32_t>(first + c);
        }
        for (int64_t ky = 0; ky < window.kernel; ++ky) {
          const int64_t iy = top + ky;
          if (iy < 0 || iy >= height) continue;
          for (int64_t kx = 0; kx < window.kernel; ++kx) {
            const int64_t ix = left + kx;
            if (ix < 0 || ix >= width) continue;
            const int64_t pixel = (iy * width + ix) * channels;
            for (int64_t c = 0; c < channels; ++c) {
              const float value = in[pixel + c];
              const bool larger = value > best[c] || value != value;  // NaN passes
              best[c] = larger ? value : best[c];
              where[c] = larger ? static_cast<int32_t>(pixel + c) : where[c];
            }
          }
        }
      }
    }
  });
}

void CpuKernels::MaxPoolBackward(const Tensor& dy, const Tensor& argmax, const Tensor& dx) {
  Span span(this);
  if (!cpu::AllF32({&dy})) {
    cpu::WideOutput wide(*this, dx);
    MaxPoolBackward(cpu::Wide(*this, dy), argmax, wide.tensor());
    return wide.Round();
  }
  const int64_t in = dx.elements() / dx.shape()[0], out = dy.elements() / dy.shape()[0];
  ParallelFor(dx.shape()[0], 1, [&](int64_t begin, int64_t end) {
    for (int64_t picture = begin; picture < end; ++picture) {
      float* to = dx.data<float>() + picture * in;
      std::fill_n(to, in, 0.0f);
      const float* from = dy.data<float>() + picture * out;
      const int32_t* where = argmax.data<int32_t>() + picture * out;
      for (int64_t i = 0; i < out; ++i) to[where[i]] += from[i];
    }
  });
}

void CpuKernels::GlobalAveragePool(const Tensor& x, const Tensor& y) {
  Span span(this);
  if (!cpu::AllF32({&x})) {
    cpu::WideOutput wide(*this, y);
    GlobalAveragePool(cpu::Wide(*this, x), wide.tensor());
    return wide.Round();
  }
  const int64_t channels = x.shape()[3], pixels = x.shape()[1] * x.shape()[2];
  ParallelFor(x.shape()[0], 1, [&](int64_t begin, int64_t end) {
    for (int64_t picture = begin; picture < end; ++picture) {
      float* mean = y.data<float>() + picture * channels;
      const float* in = x.data<float>() + picture * pixels * channels;
      std::fill_n(mean, channels, 0.0f);
      for (int64_t p = 0; p < pixels; ++p) {
        for (int64_t c = 0; c < channels; ++c) mean[c] += in[p * channels + c];
      }
      for (int64_t c = 0; c < channels; ++c) mean[c] /= static_cast<float>(pixels);
    }
  });
}

void CpuKernels::GlobalAveragePoolBackward(const Tensor& dy, const Tensor& dx) {
  Span span(this);
  if (!cpu::AllF32({&dy})) {
    cpu::WideOutput wide(*this, dx);
    GlobalAveragePoolBackward(cpu::Wide(*this, dy), wide.tensor());
    return wide.Round();
  }
  const int64_t channels = dx.shape()[3], pixels = dx.shape()[1] * dx.shape()[2];
  ParallelFor(dx.shape()[0], 1, [&](int64_t begin, int64_t end) {
    for (int64_t picture = begin; picture < end; ++picture) {
      const float* from = dy.data<float>() + picture * channels;
      float* to = dx.data<float>() + picture * pixels * channels;
      for (int64_t p = 0; p < pixels; ++p) {
        for (int64_t c = 0; c < channels; ++c) {
          to[p * channels + c] = from[c] / static_cast<float>(pixels);
        }
      }
    }
  });
}

void CpuKernels::Upsample(const Tensor& x, const Tensor& y) {
  Span span(this);
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
  Span span(this);
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
