// Element by element, matrix products, embeddings, the loss, and the optimizers.

#include "core/kernels/reference.h"

#include <algorithm>
#include <cmath>
#include <numbers>
#include <utility>

#include "core/base/philox.h"
#include "glog/logging.h"

namespace lockstep::reference {
namespace {

// f(i) with its magnitude for each element.
template <typename Function>
Result Elementwise(const Shape& shape, Function&& f) {
  Result y(shape);
  for (int64_t i = 0; i < y.elements(); ++i) y.Add(i, f(i));
  return y;
}

// The tanh approximation's argument, its derivative, and how far rounding of the argument moves
// sigmoid(2u), relatively: e^-2u is off by 2|u| times the relative error of u.
struct GeluTerms {
  explicit GeluTerms(double x)
      : u(std::sqrt(2 / std::numbers::pi) * (x + 0.044715 * x * x * x)),
        slope(std::sqrt(2 / std::numbers::pi) * (1 + 3 * 0.044715 * x * x)),
        cosh(std::cosh(u)),
        sigmoid(1 / (1 + std::exp(-2 * u))),
        condition(1 + std::abs(2 * u) * (1 - sigmoid)) {}
  double u, slope, cosh, sigmoid, condition;
};

}  // namespace

Result Add(const Array& a, const Array& b) {
  return Elementwise(a.shape, [&](int64_t i) { return a[i] + b[i]; });
}

Result Multiply(const Array& a, const Array& b) {
  return Elementwise(a.shape, [&](int64_t i) { return a[i] * b[i]; });
}

Result Scale(const Array& x, double factor) {
  return Elementwise(x.shape, [&](int64_t i) { return x[i] * factor; });
}

Result AddScaled(const Array& x, double factor, const Array& y) {
  Result sum = Scale(x, factor);
  sum.Add(y);
  return sum;
}

Result Relu(const Array& x) {
  return Elementwise(x.shape, [&](int64_t i) { return std::max(x[i], 0.0); });
}

Result ReluBackward(const Array& y, const Array& dy) {
  return Elementwise(y.shape, [&](int64_t i) { return y[i] > 0 ? dy[i] : 0.0; });
}

Result Gelu(const Array& x) {
  Result y(x.shape);
  for (int64_t i = 0; i < x.elements(); ++i) {
    const GeluTerms at(x[i]);
    // x/2 (1 + tanh u) without its cancellation: 1 + tanh u = 2 sigmoid(2u).
    y.Add(i, x[i] * at.sigmoid, at.condition);
  }
  return y;
}

Result GeluBackward(const Array& x, const Array& dy) {
  Result dx(x.shape);
  for (int64_t i = 0; i < x.elements(); ++i) {
    const GeluTerms at(x[i]);
    // d/dx of x/2 (1 + tanh u): (1 + tanh u)/2 + x/2 (1 - tanh^2 u) u', 1 - tanh^2 u = 1/cosh^2 u.
    const double slope = dy[i] * x[i] * at.slope / 2;
    dx.Add(i, dy[i] * at.sigmoid, at.condition);
    dx.Add(i, slope / (at.cosh * at.cosh), at.condition);
    // The factor 1 - sigmoid(2u) of 1/cosh^2 u is a difference to one.
    dx.magnitude[i] += std::abs(4 * slope) * at.sigmoid;
  }
  return dx;
}

namespace {

// SiLU of one number, and how much an error of the exponential's argument moves its terms.
struct SiluTerms {
  explicit SiluTerms(double x)
      : sigmoid(1 / (1 + std::exp(-x))), condition(1 + std::abs(x) * (1 - sigmoid)) {}
  double sigmoid, condition;
};

}  // namespace

Result SwiGlu(const Array& x) {
  const int64_t hidden = x.shape[-1] / 2;
  Result y(x.shape.With(-1, hidden));
  for (int64_t i = 0; i < y.elements(); ++i) {
    const int64_t gate = i / hidden * 2 * hidden + i % hidden;
    const SiluTerms at(x[gate]);
    y.Add(i, x[gate] * at.sigmoid * x[gate + hidden], at.condition);
  }
  return y;
}

Result SwiGluBackward(const Array& x, const Array& dy) {
  const int64_t hidden = x.shape[-1] / 2;
  Result dx(x.shape);
  for (int64_t i = 0; i < dy.elements(); ++i) {
    const int64_t gate = i / hidden * 2 * hidden + i % hidden;
    const SiluTerms at(x[gate]);
    const double slope = dy[i] * x[gate + hidden] * at.sigmoid;
    // The derivative of g s(g) is s + g s (1 - s).
    dx.Add(gate, slope, at.condition);
    dx.Add(gate, slope * x[gate] * (1 - at.sigmoid), at.condition);
    // 1 - s is a difference to one.
    dx.magnitude[gate] += std::abs(slope * x[gate]);
    dx.Add(gate + hidden, dy[i] * x[gate] * at.sigmoid, at.condition);
  }
  return dx;
}

Result Rotate(const Rotation& rotation, const Array& x, const std::vector<int32_t>& positions,
              const Array& table) {
  const int64_t width = x.shape[-1], head_width = rotation.head_width, half = head_width / 2;
  const double sign = rotation.direction == Rotation::Direction::kForward ? 1 : -1;
  Result y(x.shape);
  for (int64_t at = 0; at < x.elements(); ++at) {
    const int64_t column = at % width, i = column % head_width;
    if (column >= rotation.heads * head_width) {
      y.Add(at, x[at]);
      continue;
    }
    const int64_t angle = positions[at / width] * head_width + i % half;
    const double cosine = table[angle], sine = sign * table[angle + half];
    y.Add(at, x[at] * cosine);
    y.Add(at, i < half ? -x[at + half] * sine : x[at - half] * sine);
  }
  return y;
}

Result ApplyDropout(const Dropout& dropout, int64_t first_element, const Array& x) {
  const Philox philox(dropout.key);
  return Elementwise(x.shape, [&](int64_t i) {
    const bool keep = philox.Uniform(first_element + i, dropout.counter) >= dropout.probability;
    return keep ? x[i] / (1.0 - dropout.probability) : 0.0;
  });
}

Result MatMul(const Array& a, Transpose transpose_a, const Array& b, Transpose transpose_b) {
  const bool ta = transpose_a == Transpose::kYes, tb = transpose_b == Transpose::kYes;
  const int64_t a_width = a.shape[-1], b_width = b.shape[-1];
  const int64_t m = ta ? a_width : a.shape.rows(), k = ta ? a.shape.rows() : a_width;
  const int64_t n = tb ? b.shape.rows() : b_width;
  CHECK_EQ(b.elements(), k * n);
  Result c(Shape{m, n});
  for (int64_t i = 0; i < m; ++i) {
    for (int64_t l = 0; l < k; ++l) {
      const double left = ta ? a[l * a_width + i] : a[i * a_width + l];
      for (int64_t j = 0; j < n; ++j) {
        c.Add(i * n + j, left * (tb ? b[j * b_width + l] : b[l * b_width + j]));
      }
    }
  }
  return c;
}

Result Linear(const Array& x, const Array& w, const Array& bias, const Array& residual) {
  Result y = MatMul(x, Transpose::kNo, w, Transpose::kYes);
  const int64_t out = w.shape[0];
  for (int64_t i = 0; i < y.elements(); ++i) {
    if (bias.defined()) y.Add(i, bias[i % out]);
    if (residual.defined()) y.Add(i, residual[i]);
  }
  return y;
}

Result ColumnSums(const Array& x) {
  const int64_t width = x.shape[-1];
  Result sums(Shape{width});
  for (int64_t i = 0; i < x.elements(); ++i) sums.Add(i % width, x[i]);
  return sums;
}

LinearGradients LinearBackward(const Array& dy, const Array& x, const Array& w) {
  return {.dx = MatMul(dy, Transpose::kNo, w, Transpose::kNo),
          .dw = MatMul(dy, Transpose::kYes, x, Transpose::kNo),
          .dbias = ColumnSums(dy)};
}

namespace {

// The operands of a product whose value is the magnitude of another's.
Array Absolute(Array x) {
  for (double& v : x.value) v = std::abs(v);
  return x;
}
Array Magnitude(const Result& x) { return Array(x.shape, x.magnitude); }

// Adds to each magnitude what an error of the argument, whose magnitudes are `pre`'s, amounts to
// where the function's slope is at most `slope`: GELU's is below 1.13, its derivative's below 1.12.
void Inherit(const Result& pre, double slope, Result& y) {
  for (int64_t i = 0; i < y.elements(); ++i) y.magnitude[i] += slope * pre.magnitude[i];
}

}  // namespace

GeluMlp GeluMlpForward(const Array& x, const Array& up, const Array& up_bias, const Array& down,
                       const Array& down_bias, const Array& residual) {
  Result pre = Linear(x, up, up_bias, Array());
  Result active = Gelu(pre);
  Inherit(pre, 1.13, active);
  Result y = MatMul(active, Transpose::kNo, down, Transpose::kYes);
  y.magnitude = MatMul(Magnitude(active), Transpose::kNo, Absolute(down), Transpose::kYes).value;
  for (int64_t i = 0; i < y.elements(); ++i) {
    if (down_bias.defined()) y.Add(i, down_bias[i % down.shape[0]]);
    if (residual.defined()) y.Add(i, residual[i]);
  }
  return {.pre = std::move(pre), .y = std::move(y)};
}

GeluMlpGradients GeluMlpBackward(const Array& x, const Array& pre, const Array& up,
                                 const Array& down, const Array& dy) {
  const Result active = Gelu(pre);
  const Result dactive = MatMul(dy, Transpose::kNo, down, Transpose::kNo);
  Result dpre = GeluBackward(pre, dactive);
  Inherit(dactive, 1.13, dpre);
  GeluMlpGradients gradients;
  gradients.x = MatMul(dpre, Transpose::kNo, up, Transpose::kNo);
  gradients.x.magnitude =
      MatMul(Magnitude(dpre), Transpose::kNo, Absolute(up), Transpose::kNo).value;
  gradients.up = MatMul(dpre, Transpose::kYes, x, Transpose::kNo);
  gradients.up.magnitude =
      MatMul(Magnitude(dpre), Transpose::kYes, Absolute(x), Transpose::kNo).value;
  gradients.up_bias = ColumnSums(dpre);
  gradients.up_bias.magnitude = ColumnSums(Magnitude(dpre)).value;
  gradients.down = MatMul(dy, Transpose::kYes, active, Transpose::kNo);
  gradients.down.magnitude =
      MatMul(Absolute(dy), Transpose::kYes, Magnitude(active), Transpose::kNo).value;
  gradients.down_bias = ColumnSums(dy);
  return gradients;
}

Result Embedding(const std::vector<int32_t>& ids, const Array& table) {
  const int64_t width = table.shape[1], rows = static_cast<int64_t>(ids.size());
  return Elementwise(Shape{rows, width},
                     [&](int64_t i) { return table[ids[i / width] * width + i % width]; });
}

Result EmbeddingBackward(const std::vector<int32_t>& ids, const Array& dy, const Shape& table) {
  Result dtable(table);
  const int64_t width = table[1];
  for (int64_t i = 0; i < dy.elements(); ++i) {
    dtable.Add(ids[i / width] * width + i % width, dy[i]);
  }
  return dtable;
}

Result AddPositions(const Array& x, const Array& table) {
  Result y(x);
  const int64_t image = x.shape[1] * x.shape[2];
  for (int64_t i = 0; i < x.elements(); ++i) y.Add(i, table[i % image]);
  return y;
}

Result AddPositionsBackward(const Array& dy, const Shape& table) {
  Result dtable(table);
  const int64_t image = dy.shape[1] * dy.shape[2];
  for (int64_t i = 0; i < dy.elements(); ++i) dtable.Add(i % image, dy[i]);
  return dtable;
}

CrossEntropy SoftmaxCrossEntropy(const Array& logits, const std::vector<int32_t>& targets,
                                 double factor) {
  const int64_t classes = logits.shape[-1], rows = logits.shape.rows();
  CrossEntropy result{.losses = Result(Shape{rows}), .dlogits = Result(logits.shape)};
  for (int64_t r = 0; r < rows; ++r) {
    if (targets[r] < 0) continue;
    const double* row = logits.value.data() + r * classes;
    const double largest = *std::max_element(row, row + classes);
    double sum = 0;
    for (int64_t i = 0; i < classes; ++i) sum += std::exp(row[i] - largest);
    result.losses.Add(r, std::log(sum) + 1);  // log passes on the relative error of the sum
    result.losses.Add(r, -1);
    result.losses.Add(r, largest);
    result.losses.Add(r, -row[targets[r]]);
    for (int64_t i = 0; i < classes; ++i) {
      const double gap = largest - row[i];
      result.dlogits.Add(r * classes + i, factor * std::exp(-gap) / sum, 1 + gap);
    }
    result.dlogits.Add(r * classes + targets[r], -factor);
  }
  return result;
}

}  // namespace lockstep::reference
