#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "core/autograd/operations.h"
#include "core/nn/adaptable_layer.h"
#include "core/nn/dropout.h"
#include "core/nn/module.h"
#include "core/nn/probe.h"
#include "core/nn/recompute.h"

// The layers that models are made of. Each owns its parameters and calls the differentiable
// operations; shapes are those of operations.h. Initial values are PyTorch's unless said otherwise.
// Each also knows its slice where ranks compute it together (split.h); one that is not split does
// what it does on a single rank.

namespace lockstep {

enum class Bias { kYes, kNo };

// y = x weight^T + bias (+ residual): weight [out, in], bias [out]. Starts uniform within
// 1 / sqrt(in), or as given.
//
// Split by column it has some of the output features (rows of the weight, the bias); by row some of
// the input features (columns of the weight), and the bias and the residual are added once, after
// the sum. Slices of features that do not divide differ by one. Where the features are cut into
// leaves, the output of a row and the gradient of a column's input are trees over them, on one rank
// too.
class LinearLayer : public AdaptableLayer {
 public:
  struct Options {
    Bias bias = Bias::kYes;
    const Init* weight_init = nullptr;  // null: PyTorch's; given: the bias then starts at 0
  };
  LinearLayer(std::string name, int64_t in, int64_t out, const Options& options);
  LinearLayer(std::string name, int64_t in, int64_t out)
      : LinearLayer(std::move(name), in, out, Options{}) {}

  Variable operator()(Pass& pass, const Variable& x, const Variable* residual = nullptr) {
    if (cut_.is_cut()) return ProbedOutput(pass, RunCut(pass, x, residual));
    return ProbedOutput(pass, Adapt(pass, x, Linear(pass.tape, x, weight(), bias_, residual)));
  }
  Parameter* bias() { return bias_; }

  // Hands an output of this layer to the pass's probe, if any (probe.h).
  Variable ProbedOutput(Pass& pass, Variable y) const;

  // The layer's output for x = gelu(pre), where the layer has all of the output features.
  Variable OfGelu(Pass& pass, const Variable& pre, const Variable* residual) {
    return ProbedOutput(pass, RunOfGelu(pass, pre, residual));
  }
  // The layer's output for x = swiglu(pre), where pre has gates and then values of this layer's
  // input features. Without bias.
  Variable OfSwiGlu(Pass& pass, const Variable& pre, const Variable* residual) {
    return adapters().empty() ? ProbedOutput(pass, RunOfSwiGlu(pass, pre, residual))
                              : (*this)(pass, SwiGlu(pass.tape, pre), residual);
  }

  const FeatureCut& cut() const { return cut_; }
  // The leaves of a sum over output features, which a column cuts, or over input features, which a
  // row cuts; none where one leaf is here.
  FeatureLeaves OutputLeaves() const;
  FeatureLeaves InputLeaves() const { return cut_.Leaves(weight().shape[1]); }

  absl::Status CheckSplit(SplitStyle style, int count, const std::string& slices) const override;
  void CutFeatures(SplitStyle style, int features) override;
  void Split(SplitStyle style, SplitGroup& group) override;

 protected:
  // The output features of leaves [first, first + count), as a slice of the weight's rows.
  virtual Slice OutputSlice(int first, int count) const;

 private:
  Variable RunCut(Pass& pass, const Variable& x, const Variable* residual);
  Variable RunOfGelu(Pass& pass, const Variable& pre, const Variable* residual);
  Variable RunOfSwiGlu(Pass& pass, const Variable& pre, const Variable* residual);
  // Sums what the members of a row make of their inputs.
  Variable SumRow(Pass& pass, Variable part, const Variable* residual);

  FeatureCut cut_;
  Parameter* bias_;  // null: none
};

// Several projections of one input as one product: their outputs side by side. Split by column it
// has some of the units of each projection.
class PackedLinearLayer : public LinearLayer {
 public:
  struct Projection {
    std::string name;        // it can be adapted by itself: "<layer>.<name>"
    int64_t units = 0;       // that ranks divide
    int64_t unit_width = 1;  // output features of a unit
    const char* units_called = "output features";
  };
  PackedLinearLayer(std::string name, int64_t in, std::vector<Projection> projections,
                    const Options& options);

  std::vector<Target> Targets() const override;

  absl::Status CheckSplit(SplitStyle style, int count, const std::string& slices) const override;

 protected:
  // The units of projection `i` that this rank computes.
  Range OwnUnits(size_t i) const;
  Slice OutputSlice(int first, int count) const override;

 private:
  std::vector<Projection> projections_;
};

// The packed projections that self-attention takes: queries, then keys, then values, of all heads.
// Keys and values may have fewer heads than queries, each for a group of them. The projections are
// "q", "k" and "v".
class QkvLayer : public PackedLinearLayer {
 public:
  // Requires width to be a multiple of heads, and heads of key_heads.
  QkvLayer(std::string name, int64_t width, int64_t heads, int64_t key_heads,
           const Options& options);
  QkvLayer(std::string name, int64_t width, int64_t heads, const Options& options)
      : QkvLayer(std::move(name), width, heads, heads, options) {}

  // What is to be computed from this layer's output.
  Attention Attend(const Dropout& dropout) const;
  // Hands what attention has made of this layer's output to the pass's probe, under `place`.
  Variable ProbedAttention(Pass& pass, const std::string& place, Variable y) const;

 private:
  int64_t heads_, head_width_;
};

// The packed projections of an MLP with SwiGLU, [width] to [2 * hidden]: "gate", then "up".
class GateUpLayer : public PackedLinearLayer {
 public:
  GateUpLayer(std::string name, int64_t width, int64_t hidden, const Options& options)
      : PackedLinearLayer(std::move(name), width,
                          {{.name = "gate", .units = hidden, .units_called = "hidden features"},
                           {.name = "up", .units = hidden, .units_called = "hidden features"}},
                          options) {}
};

// down(gelu(up(x))) (+ residual), fused where neither layer is adapted.
Variable RunMlp(Pass& pass, const Variable& x, LinearLayer& up, LinearLayer& down,
                const Variable* residual = nullptr);

// down(silu(gate) * up) (+ residual), gate and up from x. Neither layer has a bias.
Variable RunSwiGluMlp(Pass& pass, const Variable& x, GateUpLayer& gate_up, LinearLayer& down,
                      const Variable* residual = nullptr);

// Without bias, as batch normalisation follows. Starts normal with variance 2 / (out kernel^2), the
// initialisation of ResNets (He et al., 2015, by fan-out). Split by column it has some of the
// output channels, by row some of the input channels. Feature leaves are computed one by one, each
// by the algorithm that suits its channels.
class ConvolutionLayer : public AdaptableLayer {
 public:
  ConvolutionLayer(std::string name, int64_t in, int64_t out, const Window& window);

  Variable operator()(Pass& pass, const Variable& x) {
    return Probed(pass, name(), Run(pass, x), weight());
  }

  absl::Status CheckSplit(SplitStyle style, int count, const std::string& slices) const override;
  void CutFeatures(SplitStyle style, int features) override;
  void Split(SplitStyle style, SplitGroup& group) override;

 private:
  Variable Run(Pass& pass, const Variable& x);

  Window window_;
  FeatureCut cut_;
};

// activation(batch_norm(x) + residual); in evaluation, and where it is frozen, with the running
// estimate. Split by column it has some of the channels, and nothing to say to the others.
// `momentum` as in RunningStatistics.
class BatchNormLayer : public Module {
 public:
  static constexpr float kMomentum = 0.1f;

  BatchNormLayer(std::string name, int64_t channels, Activation activation,
                 std::optional<float> momentum = kMomentum);

  Variable operator()(Pass& pass, const Variable& x, const Variable* residual = nullptr) {
    return Probed(pass, name(), Run(pass, x, residual), weight_);
  }

  void CutFeatures(SplitStyle /*style*/, int features) override { features_ = features; }
  void Split(SplitStyle style, SplitGroup& group) override;

 private:
  static constexpr float kEpsilon = 1e-5f;

  Variable Run(Pass& pass, const Variable& x, const Variable* residual);

  int features_ = 1;
  Activation activation_;
  Parameter& weight_;
  Parameter& bias_;
  RunningStatistics& statistics_;
};

// activation(batch_norm(convolution(x)) + residual): what convolutional networks are made of, and
// the operation "convolution". Recomputed, it keeps its input and not what its convolution makes.
class ConvolutionUnit : public Module {
 public:
  ConvolutionUnit(std::string name, int64_t in, int64_t out, const Window& window,
                  Activation activation)
      : Module(std::move(name)),
        convolution_(AddChild<ConvolutionLayer>("conv", in, out, window)),
        norm_(AddChild<BatchNormLayer>("norm", out, activation)) {}

  Variable operator()(Pass& pass, const Variable& x, const Variable* residual = nullptr) {
    Variables inputs = {x};
    if (residual != nullptr) inputs.push_back(*residual);
    return Operate(pass, "convolution", std::move(inputs), [this](Pass& run, const Variables& in) {
      return norm_(run, convolution_(run, in[0]), in.size() > 1 ? &in[1] : nullptr);
    });
  }

 private:
  ConvolutionLayer& convolution_;
  BatchNormLayer& norm_;
};

class LayerNormLayer : public Module {
 public:
  LayerNormLayer(std::string name, int64_t width);

  Variable operator()(Pass& pass, const Variable& x) {
    return Probed(pass, name(), LayerNorm(pass.tape, x, weight_, bias_, kEpsilon));
  }

 private:
  static constexpr float kEpsilon = 1e-5f;

  Parameter& weight_;
  Parameter& bias_;
};

class RmsNormLayer : public Module {
 public:
  RmsNormLayer(std::string name, int64_t width, float epsilon);

  Variable operator()(Pass& pass, const Variable& x) {
    return Probed(pass, name(), RmsNorm(pass.tape, x, weight_, epsilon_));
  }

 private:
  float epsilon_;
  Parameter& weight_;
};

// A table [entries, width] of rows to look up. That of a vocabulary is padded to a multiple of 64 x
// features rows, of which each feature leaf has as many, and the last leaves fewer entries or none;
// one of fewer entries than that to a multiple of features, so that no leaf goes without. Split, it
// has the rows of some leaves.
class EmbeddingLayer : public Module {
 public:
  EmbeddingLayer(std::string name, int64_t entries, int64_t width, Init init);

  // [ids..., width]; of a split sequence the own tokens' rows.
  Variable operator()(Pass& pass, const Variable& ids) {
    return Probed(pass, name(), Run(pass, ids));
  }
  Parameter& weight() { return weight_; }

  void CutFeatures(SplitStyle style, int features) override;
  void Split(SplitStyle style, SplitGroup& group) override;

 private:
  Variable Run(Pass& pass, const Variable& ids);

  FeatureCut cut_;
  Parameter& weight_;
};

// x [batch, time, width] + a learned row for each position: table [longest, width]. Knows which
// positions the tokens of a split sequence have.
class PositionLayer : public Module {
 public:
  PositionLayer(std::string name, int64_t longest, int64_t width, Init init);

  Variable operator()(Pass& pass, const Variable& x) { return Probed(pass, name(), Run(pass, x)); }

  void Split(SplitStyle style, SplitGroup& group) override;

 private:
  Variable Run(Pass& pass, const Variable& x);

  SplitGroup* sequence_ = nullptr;  // null: x has all tokens
  Parameter& weight_;
};

// The logits of a language model: x weight^T, the weight [vocabulary, width] being an embedding's
// table, or its own. Split by vocabulary it has some of the classes, of which it tells the loss
// through the pass. Where the pass wants the loss in runs, it hands on losses [rows] in place of
// logits. A weight is padded as EmbeddingLayer's table is.
class LogitsLayer : public Module {
 public:
  // Tied to the table of an embedding.
  LogitsLayer(std::string name, Parameter& table);
  LogitsLayer(std::string name, int64_t vocabulary, int64_t width, Init init);

  Variable operator()(Pass& pass, const Variable& x);

  void CutFeatures(SplitStyle style, int features) override;
  void Split(SplitStyle style, SplitGroup& group) override;

 private:
  Variable Run(Pass& pass, const Variable& x);

  FeatureCut cut_;
  Parameter& weight_;
};

// Dropout of activations [..., width] on their way through the model; knows which elements the
// tokens of a split sequence have.
class DropoutLayer : public Module {
 public:
  DropoutLayer(std::string name, std::string place, float probability)
      : Module(std::move(name)), place_(std::move(place)), probability_(probability) {}

  // Whether anything can fall out in this pass.
  bool IsActive(const Pass& pass) const { return pass.training() && probability_ > 0; }
  Variable operator()(Pass& pass, const Variable& x) const;

  void Split(SplitStyle style, SplitGroup& group) override;

 private:
  std::string place_;
  float probability_;
  SplitGroup* sequence_ = nullptr;  // null: x has all tokens
};

}  // namespace lockstep
