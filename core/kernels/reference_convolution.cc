// Convolution and pooling.

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "core/kernels/reference.h"

namespace lockstep::reference {
namespace {

// Calls visit(x pixel, w tap, y pixel) for every pair of an output pixel and a tap of its window
// that falls into the image; all three count pixels or taps, not channels.
template <typename Visit>
void ForTaps(const Shape& x, const Shape& y, const Window& window, Visit&& visit) {
  for (int64_t b = 0; b < y[0]; ++b) {
    for (int64_t oy = 0; oy < y[1]; ++oy) {
      for (int64_t ox = 0; ox < y[2]; ++ox) {
        for (int64_t ky = 0; ky < window.kernel; ++ky) {
          for (int64_t kx = 0; kx < window.kernel; ++kx) {
            const int64_t iy = oy * window.stride + ky - window.padding;
            const int64_t ix = ox * window.stride + kx - window.padding;
            if (iy < 0 || iy >= x[1] || ix < 0 || ix >= x[2]) continue;
            visit((b * x[1] + iy) * x[2] + ix, ky * window.kernel + kx,
                  (b * y[1] + oy) * y[2] + ox);
          }
        }
      }
    }
  }
}

Shape OutputShape(const Shape& x, const Window& window, int64_t channels) {
  return {x[0], window.Output(x[1]), window.Output(x[2]), channels};
}

}  // namespace

Result Convolution(const Array& x, const Array& w, const Array& bias, const Window& window) {
  const int64_t in = w.shape[3], out = w.shape[0], taps = w.shape[1] * w.shape[2];
  Result y(OutputShape(x.shape, window, out));
  ForTaps(x.shape, y.shape, window, [&](int64_t from, int64_t tap, int64_t to) {
    for (int64_t o = 0; o < out; ++o) {
      for (int64_t i = 0; i < in; ++i) {
        y.Add(to * out + o, x[from * in + i] * w[(o * taps + tap) * in + i]);
      }
    }
  });
  if (bias.defined()) {
    for (int64_t i = 0; i < y.elements(); ++i) y.Add(i, bias[i % out]);
  }
  return y;
}

ConvolutionGradients ConvolutionBackward(const Array& dy, const Array& x, const Array& w,
                                         const Window& window) {
  const int64_t in = w.shape[3], out = w.shape[0], taps = w.shape[1] * w.shape[2];
  ConvolutionGradients gradients{
      .dx = Result(x.shape), .dw = Result(w.shape), .dbias = ColumnSums(dy)};
  ForTaps(x.shape, dy.shape, window, [&](int64_t from, int64_t tap, int64_t to) {
    for (int64_t o = 0; o < out; ++o) {
      const double slope = dy[to * out + o];
      for (int64_t i = 0; i < in; ++i) {
        const int64_t weight = (o * taps + tap) * in + i;
        gradients.dx.Add(from * in + i, slope * w[weight]);
        gradients.dw.Add(weight, slope * x[from * in + i]);
      }
    }
  });
  return gradients;
}

Result MaxPool(const Array& x, const Window& window) {
  const int64_t channels = x.shape[3];
  Result y(OutputShape(x.shape, window, channels));
  y.value.assign(y.elements(), -std::numeric_limits<double>::infinity());
  ForTaps(x.shape, y.shape, window, [&](int64_t from, int64_t, int64_t to) {
    for (int64_t c = 0; c < channels; ++c) {
      double& best = y.value[to * channels + c];
      best = std::max(best, x[from * channels + c]);
    }
  });
  for (int64_t i = 0; i < y.elements(); ++i) y.magnitude[i] = std::abs(y[i]);
  return y;
}

Result MaxPoolBackward(const Array& x, const Window& window, const Array& dy) {
  const int64_t channels = x.shape[3];
  const Result y = MaxPool(x, window);
  Result dx(x.shape);
  std::vector<bool> found(y.elements());
  ForTaps(x.shape, y.shape, window, [&](int64_t from, int64_t, int64_t to) {
    for (int64_t c = 0; c < channels; ++c) {
      const int64_t i = to * channels + c;
      if (found[i] || x[from * channels + c] != y[i]) continue;
      found[i] = true;
      dx.Add(from * channels + c, dy[i]);
    }
  });
  return dx;
}

Result GlobalAveragePool(const Array& x) {
  const int64_t channels = x.shape[3], pixels = x.shape[1] * x.shape[2];
  Result y(Shape{x.shape[0], channels});
  for (int64_t i = 0; i < x.elements(); ++i) {
    y.Add(i / (pixels * channels) * channels + i % channels, x[i] / static_cast<double>(pixels));
  }
  return y;
}

Result GlobalAveragePoolBackward(const Array& dy, const Shape& x) {
  const int64_t channels = x[3], pixels = x[1] * x[2];
  Result dx(x);
  for (int64_t i = 0; i < dx.elements(); ++i) {
    dx.Add(i, dy[i / (pixels * channels) * channels + i % channels] / static_cast<double>(pixels));
  }
  return dx;
}

Result Upsample(const Array& x) {
  const Shape& s = x.shape;
  Array y(Shape{s[0], 2 * s[1], 2 * s[2], s[3]});
  for (int64_t i = 0; i < y.elements(); ++i) {
    const int64_t c = i % s[3], column = i / s[3] % (2 * s[2]);
    const int64_t line = i / (s[3] * 2 * s[2]);  // over all images: each has an even number
    y.value[i] = x[(line / 2 * s[2] + column / 2) * s[3] + c];
  }
  return Result(y);
}

Result UpsampleBackward(const Array& dy) {
  const Shape& s = dy.shape;
  Result dx(Shape{s[0], s[1] / 2, s[2] / 2, s[3]});
  for (int64_t i = 0; i < dy.elements(); ++i) {
    const int64_t c = i % s[3], column = i / s[3] % s[2], line = i / (s[3] * s[2]);
    dx.Add((line / 2 * (s[2] / 2) + column / 2) * s[3] + c, dy[i]);
  }
  return dx;
}

Result Concatenate(const Array& a, const Array& b) {
  const int64_t left = a.shape[-1], right = b.shape[-1];
  Array y(a.shape.With(-1, left + right));
  for (int64_t i = 0; i < y.elements(); ++i) {
    const int64_t row = i / (left + right), column = i % (left + right);
    y.value[i] = column < left ? a[row * left + column] : b[row * right + column - left];
  }
  return Result(y);
}

}  // namespace lockstep::reference
