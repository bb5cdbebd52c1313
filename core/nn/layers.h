#pragma once

#include <cstdint>
#include <string>
#include <utility>

#include "core/autograd/operations.h"
#include "core/nn/module.h"

// The layers that models are made of. Each owns its parameters and calls the differentiable
// operations; shapes are those of operations.h. Initial values are PyTorch's unless said otherwise.

namespace lockstep {

enum class Bias { kYes, kNo };

// y = x weight^T + bias (+ residual): weight [out, in], bias [out]. Starts uniform within
// 1 / sqrt(in), or as given.
class LinearLayer : public Module {
 public:
  struct Options {
    Bias bias = Bias::kYes;
    const Init* weight_init = nullptr;  // null: PyTorch's; given: the bias then starts at 0
  };
  LinearLayer(std::string name, int64_t in, int64_t out, const Options& options);
  LinearLayer(std::string name, int64_t in, int64_t out)
      : LinearLayer(std::move(name), in, out, Options{}) {}

  Variable operator()(Pass& pass, const Variable& x, const Variable* residual = nullptr) {
    return Linear(pass.tape, x, weight_, bias_, residual);
  }
  Parameter& weight() { return weight_; }
  Parameter* bias() { return bias_; }

 private:
  Parameter& weight_;
  Parameter* bias_;  // null: none
};

// Without bias, as batch normalisation follows. Starts normal with variance 2 / (out kernel^2), the
// initialisation of ResNets (He et al., 2015, by fan-out).
class ConvolutionLayer : public Module {
 public:
  ConvolutionLayer(std::string name, int64_t in, int64_t out, const Window& window);

  Variable operator()(Pass& pass, const Variable& x) {
    return Convolution(pass.tape, x, weight_, nullptr, window_);
  }

 private:
  Window window_;
  Parameter& weight_;
};

// activation(batch_norm(x) + residual); in evaluation with the running estimate.
class BatchNormLayer : public Module {
 public:
  BatchNormLayer(std::string name, int64_t channels, Activation activation);

  Variable operator()(Pass& pass, const Variable& x, const Variable* residual = nullptr);

 private:
  static constexpr float kEpsilon = 1e-5f;
  static constexpr float kMomentum = 0.1f;

  Activation activation_;
  Parameter& weight_;
  Parameter& bias_;
  RunningStatistics& statistics_;
};

class LayerNormLayer : public Module {
 public:
  LayerNormLayer(std::string name, int64_t width);

  Variable operator()(Pass& pass, const Variable& x) {
    return LayerNorm(pass.tape, x, weight_, bias_, kEpsilon);
  }

 private:
  static constexpr float kEpsilon = 1e-5f;

  Parameter& weight_;
  Parameter& bias_;
};

// A table [entries, width] of rows to look up.
class EmbeddingLayer : public Module {
 public:
  EmbeddingLayer(std::string name, int64_t entries, int64_t width, Init init);

  Parameter& weight() { return weight_; }

 private:
  Parameter& weight_;
};

// The dropout of one place in a model: which elements fall out depends on (seed, layer name, step,
// micro-batch, element), so that a recompute repeats it. Probability 0 in evaluation.
Dropout DropoutAt(const Pass& pass, const std::string& layer_name, float probability);

}  // namespace lockstep
