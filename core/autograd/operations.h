#pragma once

#include <cstdint>

#include "core/autograd/leaf.h"
#include "core/autograd/tape.h"
#include "core/autograd/variable.h"
#include "core/kernels/kernels.h"

// The differentiable operations. Each computes its result at once and records how gradients flow
// back; with a tape that does not record it is the kernel alone. Shapes are the kernels'
// (kernels.h), and so are dtypes: a result has its input's, an embedding its table's. A Leaf
// pointer may be null where the kernel's tensor may be undefined. Leaves must outlive the tape.

namespace lockstep {

// a + b, of one shape.
Variable Add(Tape& tape, const Variable& a, const Variable& b);
Variable Relu(Tape& tape, const Variable& x);
Variable Gelu(Tape& tape, const Variable& x);

// silu(gate) * up: x [..., 2 * hidden], whose rows are gate, then up, to [..., hidden].
Variable SwiGlu(Tape& tape, const Variable& x);

// x itself when the probability is 0. `first_element`: where x begins in the unsharded tensor.
Variable ApplyDropout(Tape& tape, const Dropout& dropout, const Variable& x,
                      int64_t first_element = 0);

// Where x is columns first_column, first_column + 1, ... of an unsharded matrix of so many columns.
// `first_element`: where the first of its rows, whole, begins.
Variable ApplyDropoutToColumns(Tape& tape, const Dropout& dropout, const Variable& x,
                               int64_t first_column, int64_t columns, int64_t first_element = 0);

// factor x
Variable Scale(Tape& tape, const Variable& x, float factor);

// The same elements under another shape.
Variable Reshape(Tape& tape, const Variable& x, const Shape& shape);

// Sums over features that are trees over leaves (Kernels::LinearByLeaves). Empty: not cut.
struct SummedLeaves {
  FeatureLeaves inputs = {};   // of the sum over input features: without bias and residual
  FeatureLeaves outputs = {};  // of the sum over output features, the input's gradient
};

// x w^T + bias + residual: x [..., in], w [out, in], residual and the result [..., out].
Variable Linear(Tape& tape, const Variable& x, Leaf& w, Leaf* bias,
                const Variable* residual = nullptr, const SummedLeaves& leaves = {});

// x + bias + residual, either of which may be null: what follows a product that was summed over
// ranks. x [..., width] is used up: its memory becomes the result's where nobody else holds it.
Variable AddBias(Tape& tape, Variable x, Leaf* bias, const Variable* residual);

// y [rows, width] with x w^T added to its columns from `first` on: x [rows, in], w [columns, in].
// Uses y up: its memory becomes the result's where nobody else holds it.
Variable AddProduct(Tape& tape, Variable y, const Variable& x, Leaf& w, int64_t first);

// gelu(x up^T + up_bias) down^T + down_bias + residual: a transformer's MLP, with GELU and its
// gradient fused into the products. up [hidden, width], down [width, hidden].
struct GeluMlp {
  Leaf& up;
  Leaf& up_bias;
  Leaf& down;
  Leaf* down_bias;  // may be null
  // The leaves of sums over hidden features. A cut network has no down_bias and no residual here;
  // they are added behind the sum. Empty: the sums are not cut.
  FeatureLeaves leaves = {};
};
Variable ApplyGeluMlp(Tape& tape, const Variable& x, const GeluMlp& mlp, const Variable* residual);

// Its second half, where the first is computed apart: gelu(pre) w^T + bias + residual.
Variable GeluLinear(Tape& tape, const Variable& pre, Leaf& w, Leaf* bias, const Variable* residual);

// The second half of an MLP with SwiGLU: SwiGlu(pre) w^T + residual. pre [..., 2 * hidden],
// w [width, hidden]. Keeps `pre` alone for backward, which computes SwiGlu again. `inputs`: the
// leaves of the sum over hidden features; a cut sum has no residual here. Empty: not cut.
Variable SwiGluLinear(Tape& tape, const Variable& pre, Leaf& w, const Variable* residual,
                      const FeatureLeaves& inputs = {});

// x [batch, height, width, in], w [out, kernel, kernel, in], result [batch, h', w', out]. A trained
// bias needs a trained w.
Variable Convolution(Tape& tape, const Variable& x, Leaf& w, Leaf* bias, const Window& window);
Variable MaxPool(Tape& tape, const Variable& x, const Window& window);
// [batch, height, width, channels] to [batch, channels]
Variable GlobalAveragePool(Tape& tape, const Variable& x);
// [batch, height, width, channels] to [batch, 2 height, 2 width, channels], each pixel four times.
Variable Upsample(Tape& tape, const Variable& x);

// Channels of a, then of b: [..., m] and [..., n] to [..., m + n].
Variable Concatenate(Tape& tape, const Variable& a, const Variable& b);

// activation(batch_norm(x) + residual) with the statistics of this batch, which are also written to
// mean and variance [channels] for the running estimate.
struct BatchNormOptions {
  float epsilon = 1e-5f;
  Activation activation = Activation::kNone;
};
Variable BatchNorm(Tape& tape, const Variable& x, Leaf& scale, Leaf& shift,
                   const Variable* residual, const BatchNormOptions& options, const Tensor& mean,
                   const Tensor& variance);

// The same with given statistics, of frozen leaves: a layer that is not trained.
Variable BatchNormByEstimate(Tape& tape, const Variable& x, const Leaf& scale, const Leaf& shift,
                             const Variable* residual, const BatchNormOptions& options,
                             const Tensor& mean, const Tensor& variance);

// Over the last dimension.
Variable LayerNorm(Tape& tape, const Variable& x, Leaf& scale, Leaf& shift, float epsilon);

// Over the last dimension.
Variable RmsNorm(Tape& tape, const Variable& x, Leaf& scale, float epsilon);

// Rows of table [vocabulary, width] for ids (i32) of any shape: result [ids..., width], -0.0 for
// negative ids.
Variable Embedding(Tape& tape, const Variable& ids, Leaf& table);

// x [batch, time, width] + positions [>= time, width].
Variable AddPositions(Tape& tape, const Variable& x, Leaf& positions);

// Turns heads of x [..., width] forward by the positions (i32) of its rows (Kernels::Rotate), which
// are constants, as the table is. x is used up: its memory becomes the result's where nobody else
// holds it.
Variable Rotate(Tape& tape, Variable x, int64_t heads, int64_t head_width, const Tensor& positions,
                const Tensor& table);

// Causal self-attention: qkv [batch, time, packed_width] to [batch, time, query_width]. Of
// sequences that are cut into token leaves (core/base/token_order.h), [leaves * batch, time /
// leaves, ...] each.
Variable SelfAttention(Tape& tape, const Variable& qkv, const Attention& attention,
                       int64_t leaves = 1);

// The sum over all rows of cross entropy, times `factor` (1 / the global count of targets, times a
// loss scale), over the first `classes` columns of the logits. Records the start of backward:
// afterwards Tape::Backward needs no seeds. Uses up the logits' memory where nobody else holds it.
struct CrossEntropy {
  Tensor losses;  // [rows], without the factor; 0 where the target is ignored
};
CrossEntropy SoftmaxCrossEntropy(Tape& tape, Variable logits, int64_t classes,
                                 const Tensor& targets, float factor);

}  // namespace lockstep
