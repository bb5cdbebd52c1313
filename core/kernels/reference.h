// What every kernel computes, as plain loops in double precision written from the formulas: what
// tests of kernels, operations and models compare with. Slow and simple on purpose; nothing here
// shares code or ideas with an implementation. reference_test.cc holds the gradients to central
// differences.
//
// Each result carries, beside its value, the sum of the magnitudes of the terms it was added up
// from. An evaluation in fp32, in whatever order, is off by a small multiple of the unit roundoff
// times that sum (Higham, "Accuracy and Stability of Numerical Algorithms", chapter 3), however
// much of the value itself cancels: the measure of a fair tolerance, element by element.

#pragma once

#include <array>
#include <cmath>
#include <cstdint>
#include <utility>
#include <vector>

#include "core/kernels/kernels.h"
#include "core/tensor/shape.h"

namespace lockstep::reference {

// A dense row-major array on the host. Default-constructed it is undefined, as a Tensor is.
struct Array {
  Array() = default;
  explicit Array(const Shape& dims) : shape(dims), value(dims.elements(), 0.0) {}
  Array(const Shape& dims, std::vector<double> elements)
      : shape(dims), value(std::move(elements)) {}

  bool defined() const { return !value.empty(); }
  int64_t elements() const { return static_cast<int64_t>(value.size()); }
  double operator[](int64_t i) const { return value[i]; }

  Shape shape;
  std::vector<double> value;
};

// An array that knows what its elements were added up from.
struct Result : Array {
  Result() = default;
  explicit Result(const Shape& dims) : Array(dims), magnitude(dims.elements(), 0.0) {}
  explicit Result(const Array& exact) : Array(exact), magnitude(exact.elements(), 0.0) {
    for (int64_t i = 0; i < elements(); ++i) magnitude[i] = std::abs(value[i]);
  }

  // Adds a term to element i. `condition`: how many times its own rounding error the term may be
  // off because of what it was computed from; e^x, for one, passes |x| times the error of x on.
  void Add(int64_t i, double term, double condition = 1) {
    value[i] += term;
    magnitude[i] += std::abs(term) * condition;
  }
  // Adds what a kernel that accumulates found in its output.
  void Add(const Array& start) {
    for (int64_t i = 0; i < elements(); ++i) Add(i, start[i]);
  }

  std::vector<double> magnitude;
};

// --- element by element -------------------------------------------------------------------------
Result Add(const Array& a, const Array& b);
Result Multiply(const Array& a, const Array& b);
Result Scale(const Array& x, double factor);
Result AddScaled(const Array& x, double factor, const Array& y);
Result Relu(const Array& x);
Result ReluBackward(const Array& y, const Array& dy);
Result Gelu(const Array& x);
Result GeluBackward(const Array& x, const Array& dy);
// silu(gate) * up of rows that are gate, then up.
Result SwiGlu(const Array& x);
Result SwiGluBackward(const Array& x, const Array& dy);
Result ApplyDropout(const Dropout& dropout, int64_t first_element, const Array& x);

// --- matrix products ----------------------------------------------------------------------------
Result MatMul(const Array& a, Transpose transpose_a, const Array& b, Transpose transpose_b);
Result Linear(const Array& x, const Array& w, const Array& bias, const Array& residual);
// The sums of the columns of x[rows, width]: the gradient of a bias.
Result ColumnSums(const Array& x);
struct LinearGradients {
  Result dx, dw, dbias;
};
LinearGradients LinearBackward(const Array& dy, const Array& x, const Array& w);
struct GeluMlp {
  Result pre, y;
};
GeluMlp GeluMlpForward(const Array& x, const Array& up, const Array& up_bias, const Array& down,
                       const Array& down_bias, const Array& residual);
struct GeluMlpGradients {
  Result x, up, up_bias, down, down_bias;
};
GeluMlpGradients GeluMlpBackward(const Array& x, const Array& pre, const Array& up,
                                 const Array& down, const Array& dy);

// --- convolution and pooling --------------------------------------------------------------------
Result Convolution(const Array& x, const Array& w, const Array& bias, const Window& window);
struct ConvolutionGradients {
  Result dx, dw, dbias;
};
ConvolutionGradients ConvolutionBackward(const Array& dy, const Array& x, const Array& w,
                                         const Window& window);
Result MaxPool(const Array& x, const Window& window);
// To the first element of a window that equals the maximum.
Result MaxPoolBackward(const Array& x, const Window& window, const Array& dy);
Result GlobalAveragePool(const Array& x);
Result GlobalAveragePoolBackward(const Array& dy, const Shape& x);
Result Upsample(const Array& x);
Result UpsampleBackward(const Array& dy);
// Channels of a, then of b.
Result Concatenate(const Array& a, const Array& b);

// --- normalisation ------------------------------------------------------------------------------
struct Normalized {
  Result y, mean;
  Result spread;  // biased variance (batch) or inverse standard deviation (layer)
};
struct NormalizationGradients {
  Result dx, dresidual, dscale, dshift;
};
Normalized BatchNorm(const Array& x, const Array& scale, const Array& shift, const Array& residual,
                     double epsilon, Activation activation);
Result BatchNormInference(const Array& x, const Array& scale, const Array& shift,
                          const Array& residual, const Array& mean, const Array& variance,
                          double epsilon, Activation activation);
// With this batch's statistics; `y` defined: an activation followed, which passed where y > 0.
NormalizationGradients BatchNormBackward(const Array& x, const Array& scale, double epsilon,
                                         const Array& y, const Array& dy);
Normalized LayerNorm(const Array& x, const Array& scale, const Array& shift, double epsilon);
// dx without any residual; dresidual stays undefined.
NormalizationGradients LayerNormBackward(const Array& x, const Array& scale, double epsilon,
                                         const Array& dy);

// Only y, spread (the inverse root mean square) and dx, dscale are defined.
Normalized RmsNorm(const Array& x, const Array& scale, double epsilon);
NormalizationGradients RmsNormBackward(const Array& x, const Array& scale, double epsilon,
                                       const Array& dy);

// --- sequences ----------------------------------------------------------------------------------
Result Embedding(const std::vector<int32_t>& ids, const Array& table);
Result EmbeddingBackward(const std::vector<int32_t>& ids, const Array& dy, const Shape& table);
Result AddPositions(const Array& x, const Array& table);
Result AddPositionsBackward(const Array& dy, const Shape& table);
Result Rotate(const Rotation& rotation, const Array& x, const std::vector<int32_t>& positions,
              const Array& table);
struct Attended {
  Result y, log_sum_exp;
};
// Rows lie in the order of core/base/token_order.h, dropout's elements in that of memory.
Attended AttentionForward(const Attention& attention, const Array& qkv, int64_t leaves = 1);
Result AttentionBackward(const Attention& attention, const Array& qkv, const Array& dy,
                         int64_t leaves = 1);

// --- mixtures of experts ------------------------------------------------------------------------
struct Routed {
  std::vector<int32_t> chosen;  // [rows, k]
  Result weights;
  // The least difference between the scores, bias included, of an expert that was chosen and the
  // next one: an implementation that is off by more may choose otherwise.
  double margin = 0;
};
// `bias` may be undefined.
Routed Route(const Routing& routing, const Array& logits, const Array& bias);
// The normalised scores of each row, [rows, experts].
Array NormalizedScores(const Routing& routing, const Array& logits);
// `balance` may be undefined.
Result RouteBackward(const Routing& routing, const Array& logits,
                     const std::vector<int32_t>& chosen, const Array& dweights,
                     const Array& balance);
// `weights` and `residual` may be undefined.
Result CombineRows(const Array& x, const std::vector<int32_t>& places, const Array& weights,
                   const Array& residual, int64_t rows);
struct CombineGradients {
  Result dx, dweights;
};
CombineGradients CombineRowsBackward(const Array& dsums, const Array& x,
                                     const std::vector<int32_t>& places, const Array& weights);

// --- loss ---------------------------------------------------------------------------------------
struct CrossEntropy {
  Result losses, dlogits;
};
CrossEntropy SoftmaxCrossEntropy(const Array& logits, const std::vector<int32_t>& targets,
                                 double factor);

// --- optimizers ---------------------------------------------------------------------------------
// One step in place, as the optimizer's paper or torch.optim writes it down. `states` are those
// that StateNames(optimizer) names, in that order.
void UpdateParameter(const OptimizerRule& optimizer, const OptimizerStep& step,
                     const Array& gradient, Result& parameter,
                     std::array<Result, kMostOptimizerStates>& states);

}  // namespace lockstep::reference
