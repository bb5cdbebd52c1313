#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "core/kernels/kernels.h"
#include "core/kernels/optimizers/registry.h"
#include "core/tensor/tensor.h"

namespace lockstep {

// A piece of what is trained: a parameter, or the shard of one that this rank updates.
struct TrainedTensor {
  std::string name;
  Tensor value;
  Tensor gradient;
  bool decays = true;  // whether weight decay applies
  Tensor copy = {};    // the value in the dtype that is computed with; undefined: the value itself
  // Whether this rank counts the gradient in the norm: of ranks that hold the same, one does.
  bool in_norm = true;
};

// Which optimizer, and all its settings but the learning rate.
struct OptimizerOptions {
  OptimizerRule rule = AdamW();
  float weight_decay = 0;

  // Bytes of optimizer state for each parameter.
  int64_t state_bytes_per_parameter() const {
    return SizeOf(DType::kF32) * static_cast<int64_t>(StateNames(rule).size());
  }
};

// The optimizer of one rank and its state, which exists from the start (zeros), so that memory and
// checkpoints have the same shape at every step.
class Optimizer {
 public:
  Optimizer(const OptimizerOptions& options, Kernels& kernels,
            const std::vector<TrainedTensor>& trained);

  // Updates all tensors from their gradients, each first multiplied by `gradient_factor` (clipping,
  // unscaling). `step` counts from 0. The tensors are those of the constructor, in their order.
  void Step(int64_t step, double learning_rate, float gradient_factor,
            const std::vector<TrainedTensor>& trained);

  // The state of tensor i of the constructor's list, by kind: what StateNames(rule) names, such as
  // "momentum". Checkpoints keep it as "optimizer.<kind>.<tensor name>".
  struct State {
    std::string kind;
    std::vector<Tensor> tensors;
  };
  std::vector<State>& states() { return states_; }

 private:
  OptimizerOptions options_;
  Kernels& kernels_;
  std::vector<State> states_;
};

}  // namespace lockstep
