// Convolutions on oneDNN; pooling.

#include <algorithm>

#include "core/base/parallel.h"
#include "core/kernels/cpu/cpu_kernels.h"
#include "core/kernels/cpu/primitive_cache.h"
#include "core/kernels/cpu/span.h"
#include "glog/logging.h"

namespace lockstep {

using Pass = cpu::PrimitiveCache::Pass;

void CpuKernels::Convolution(const Tensor& x, const Tensor& w, const Tensor& bias,
                             const Window& window, const Tensor& y) {
  Span span(this);
  CHECK_EQ(x.shape()[-1], w.shape()[-1]);
  CHECK_EQ(y.shape()[1], window.Output(x.shape()[1]));
  primitives_->RunConvolution(Pass::kForward, window, x, w, y);
  if (!bias.defined()) return;
  const int64_t channels = y.shape()[-1];
  ParallelFor(y.shape().rows(), 256, [&](int64_t begin, int64_t end) {
    for (int64_t r = begin; r < end; ++r) {
      float* row = y.data<float>() + r * channels;
      for (int64_t c = 0; c < channels; ++c) row[c] += bias.data<float>()[c];
    }
  });
}

void CpuKernels::ConvolutionBackwardInput(const Tensor& dy, const Tensor& w, const Window& window,
                                          const Tensor& dx) {
  Span span(this);
  primitives_->RunConvolution(Pass::kBackwardInput, window, dx, w, dy);
}

void CpuKernels::ConvolutionBackwardWeight(const Tensor& dy, const Tensor& x, const Window& window,
                                           Write write, const Tensor& dw, const Tensor& dbias) {
  Span span(this);
  if (write == Write::kOverwrite) {
    primitives_->RunConvolution(Pass::kBackwardWeight, window, x, dw, dy);
  } else {
    Tensor fresh = Workspace(dw.shape());
    primitives_->RunConvolution(Pass::kBackwardWeight, window, x, fresh, dy);
    Add(dw, fresh, dw);
  }
  if (!dbias.defined()) return;
  const int64_t channels = dy.shape()[-1], rows = dy.shape().rows();
  float* sums = dbias.data<float>();
  if (write == Write::kOverwrite) std::fill_n(sums, channels, 0.0f);
  for (int64_t r = 0; r < rows; ++r) {
    const float* row = dy.data<float>() + r * channels;
    for (int64_t c = 0; c < channels; ++c) sums[c] += row[c];
  }
}

void CpuKernels::MaxPool(const Tensor& x, const Window& window, const Tensor& y,
                         const Tensor& argmax) {
  Span span(this);
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

}  // namespace lockstep
