// Batch, layer and root mean square normalisation. The first two normalise groups of elements,
// columns or rows, by the group's mean and variance, and differ in how scale and shift lie across
// the groups.

#include <algorithm>
#include <cmath>
#include <utility>

#include "core/kernels/reference.h"

namespace lockstep::reference {
namespace {

// Which elements belong to group g: At(g, 0), At(g, 1), ...
struct Groups {
  int64_t count, size, group_stride, element_stride;
  int64_t At(int64_t group, int64_t i) const { return group * group_stride + i * element_stride; }
};

Groups Columns(const Shape& x) { return {x[-1], x.rows(), 1, x[-1]}; }
Groups Rows(const Shape& x) { return {x.rows(), x[-1], x[-1], 1}; }

struct Statistics {
  Result mean, variance;  // biased
};

Statistics Measure(const Array& x, const Groups& groups) {
  Statistics result{.mean = Result(Shape{groups.count}), .variance = Result(Shape{groups.count})};
  const double n = static_cast<double>(groups.size);
  for (int64_t g = 0; g < groups.count; ++g) {
    for (int64_t i = 0; i < groups.size; ++i) result.mean.Add(g, x[groups.At(g, i)] / n);
    double farthest = 0;
    for (int64_t i = 0; i < groups.size; ++i) {
      const double d = x[groups.At(g, i)] - result.mean[g];
      result.variance.Add(g, d * d / n);
      farthest = std::max(farthest, std::abs(d));
    }
    // A kernel may take the differences from any element of the group in place of the mean, which
    // it does not know on its first pass; more may not cancel.
    result.variance.magnitude[g] += farthest * farthest;
  }
  return result;
}

double Inverse(double variance, double epsilon) { return 1 / std::sqrt(variance + epsilon); }

// How far an error of one unit of the variance's magnitude moves its inverse root, relatively.
double InverseCondition(const Result& variance, int64_t group, double epsilon) {
  return 1 + variance.magnitude[group] / (variance[group] + epsilon) / 2;
}

// y[i] = (x[i] - mean) * inverse * scale + shift
void AddNormalized(int64_t i, double x, double mean, double mean_magnitude, double inverse,
                   double condition, double scale, double shift, Result& y) {
  const double exact = (x - mean) * inverse * scale;
  y.Add(i, exact, condition);
  // The difference carries the errors of what it was taken between.
  y.magnitude[i] += (std::abs(x) + mean_magnitude) * inverse * std::abs(scale);
  y.Add(i, shift);
}

void Finish(const Array& residual, Activation activation, Result& y) {
  if (residual.defined()) y.Add(residual);
  if (activation == Activation::kNone) return;
  for (double& value : y.value) value = std::max(value, 0.0);
}

// The gradients where a group's mean and variance depend on all of its elements. `index(i)`: the
// place of element i in scale and shift.
template <typename ParameterIndex>
NormalizationGradients Backward(const Array& x, const Array& scale, double epsilon, const Array& dy,
                                const Groups& groups, ParameterIndex&& index) {
  const Statistics statistics = Measure(x, groups);
  NormalizationGradients gradients{.dx = Result(x.shape),
                                   .dresidual = Result(),
                                   .dscale = Result(scale.shape),
                                   .dshift = Result(scale.shape)};
  const double n = static_cast<double>(groups.size);
  for (int64_t g = 0; g < groups.count; ++g) {
    const double mean = statistics.mean[g];
    const double inverse = Inverse(statistics.variance[g], epsilon);
    const double condition = InverseCondition(statistics.variance, g, epsilon);
    const auto normalized = [&](int64_t at) { return (x[at] - mean) * inverse; };
    const auto normalized_magnitude = [&](int64_t at) {
      return (std::abs(x[at]) + statistics.mean.magnitude[g]) * inverse;
    };
    double sum = 0, sum_magnitude = 0, products = 0, products_magnitude = 0;
    for (int64_t i = 0; i < groups.size; ++i) {
      const int64_t at = groups.At(g, i), p = index(at);
      const double slope = dy[at] * scale[p];
      sum += slope / n;
      sum_magnitude += std::abs(slope) / n;
      products += slope * normalized(at) / n;
      products_magnitude += std::abs(slope) * normalized_magnitude(at) / n;
      gradients.dscale.Add(p, dy[at] * normalized(at), condition);
      gradients.dscale.magnitude[p] += std::abs(dy[at]) * normalized_magnitude(at);
      gradients.dshift.Add(p, dy[at]);
    }
    for (int64_t i = 0; i < groups.size; ++i) {
      const int64_t at = groups.At(g, i);
      const double slope = dy[at] * scale[index(at)];
      gradients.dx.value[at] = inverse * (slope - sum - normalized(at) * products);
      gradients.dx.magnitude[at] =
          inverse * condition *
          (std::abs(slope) + sum_magnitude + normalized_magnitude(at) * products_magnitude);
    }
  }
  return gradients;
}

}  // namespace

Normalized BatchNorm(const Array& x, const Array& scale, const Array& shift, const Array& residual,
                     double epsilon, Activation activation) {
  Statistics statistics = Measure(x, Columns(x.shape));
  Result y(x.shape);
  for (int64_t i = 0; i < x.elements(); ++i) {
    const int64_t c = i % x.shape[-1];
    AddNormalized(i, x[i], statistics.mean[c], statistics.mean.magnitude[c],
                  Inverse(statistics.variance[c], epsilon),
                  InverseCondition(statistics.variance, c, epsilon), scale[c], shift[c], y);
  }
  Finish(residual, activation, y);
  return {.y = std::move(y),
          .mean = std::move(statistics.mean),
          .spread = std::move(statistics.variance)};
}

Result BatchNormInference(const Array& x, const Array& scale, const Array& shift,
                          const Array& residual, const Array& mean, const Array& variance,
                          double epsilon, Activation activation) {
  Result y(x.shape);
  for (int64_t i = 0; i < x.elements(); ++i) {
    const int64_t c = i % x.shape[-1];
    AddNormalized(i, x[i], mean[c], std::abs(mean[c]), Inverse(variance[c], epsilon), 1, scale[c],
                  shift[c], y);
  }
  Finish(residual, activation, y);
  return y;
}

NormalizationGradients BatchNormBackward(const Array& x, const Array& scale, double epsilon,
                                         const Array& y, const Array& dy) {
  const Result passed = y.defined() ? ReluBackward(y, dy) : Result(dy);
  NormalizationGradients gradients =
      Backward(x, scale, epsilon, passed, Columns(x.shape),
               [width = x.shape[-1]](int64_t at) { return at % width; });
  gradients.dresidual = passed;
  return gradients;
}

Normalized LayerNorm(const Array& x, const Array& scale, const Array& shift, double epsilon) {
  Statistics statistics = Measure(x, Rows(x.shape));
  const int64_t width = x.shape[-1];
  Result y(x.shape), inverse(statistics.mean.shape);
  for (int64_t r = 0; r < inverse.elements(); ++r) {
    const double condition = InverseCondition(statistics.variance, r, epsilon);
    inverse.Add(r, Inverse(statistics.variance[r], epsilon), condition);
    for (int64_t i = r * width; i < (r + 1) * width; ++i) {
      AddNormalized(i, x[i], statistics.mean[r], statistics.mean.magnitude[r], inverse[r],
                    condition, scale[i % width], shift[i % width], y);
    }
  }
  return {.y = std::move(y), .mean = std::move(statistics.mean), .spread = std::move(inverse)};
}

NormalizationGradients LayerNormBackward(const Array& x, const Array& scale, double epsilon,
                                         const Array& dy) {
  return Backward(x, scale, epsilon, dy, Rows(x.shape),
                  [width = x.shape[-1]](int64_t at) { return at % width; });
}

Normalized RmsNorm(const Array& x, const Array& scale, double epsilon) {
  const int64_t width = x.shape[-1], rows = x.shape.rows();
  Result y(x.shape), inverse(Shape{rows});
  for (int64_t r = 0; r < rows; ++r) {
    double squares = 0;
    for (int64_t i = r * width; i < (r + 1) * width; ++i) squares += x[i] * x[i];
    inverse.Add(r, 1 / std::sqrt(squares / static_cast<double>(width) + epsilon));
    for (int64_t i = r * width; i < (r + 1) * width; ++i) {
      y.Add(i, x[i] * inverse[r] * scale[i % width]);
    }
  }
  return {.y = std::move(y), .mean = Result(), .spread = std::move(inverse)};
}

NormalizationGradients RmsNormBackward(const Array& x, const Array& scale, double epsilon,
                                       const Array& dy) {
  const int64_t width = x.shape[-1], rows = x.shape.rows();
  const Result inverse = RmsNorm(x, scale, epsilon).spread;
  NormalizationGradients gradients{.dx = Result(x.shape),
                                   .dresidual = Result(),
                                   .dscale = Result(scale.shape),
                                   .dshift = Result()};
  for (int64_t r = 0; r < rows; ++r) {
    double products = 0, products_magnitude = 0;
    for (int64_t i = 0; i < width; ++i) {
      const double product = dy[r * width + i] * x[r * width + i];
      products += product * scale[i];
      products_magnitude += std::abs(product * scale[i]);
      gradients.dscale.Add(i, product * inverse[r]);
    }
    // The derivative of the inverse root of the mean square.
    const double factor = inverse[r] * inverse[r] * inverse[r] / static_cast<double>(width);
    for (int64_t i = 0; i < width; ++i) {
      const int64_t at = r * width + i;
      gradients.dx.Add(at, dy[at] * scale[i] * inverse[r]);
      gradients.dx.value[at] -= x[at] * factor * products;
      gradients.dx.magnitude[at] += std::abs(x[at]) * factor * products_magnitude;
    }
  }
  return gradients;
}

}  // namespace lockstep::reference
