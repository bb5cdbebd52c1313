#include "core/optim/optimizer.h"

#include "glog/logging.h"

namespace lockstep {

Optimizer::Optimizer(const OptimizerOptions& options, Kernels& kernels,
                     const std::vector<TrainedTensor>& trained)
    : options_(options), kernels_(kernels) {
  if (options.kind == OptimizerOptions::Kind::kAdamW) {
    states_ = {{"first_moment", {}}, {"second_moment", {}}};
  } else if (options.momentum > 0) {
    states_ = {{"momentum", {}}};
  }
  for (State& state : states_) {
    for (const TrainedTensor& tensor : trained) {
      state.tensors.push_back(
          kernels.Empty(tensor.value.shape(), DType::kF32, MemoryClass::kOptimizerState));
      kernels.Fill(state.tensors.back(), 0);
    }
  }
}

void Optimizer::Step(int64_t step, double learning_rate, float gradient_factor,
                     const std::vector<TrainedTensor>& trained) {
  std::vector<Kernels::OptimizedTensor> tensors;
  for (size_t i = 0; i < trained.size(); ++i) {
    const TrainedTensor& tensor = trained[i];
    tensors.push_back({.gradient = tensor.gradient,
                       .parameter = tensor.value,
                       .copy = tensor.copy,
                       .decays = tensor.decays});
    for (size_t s = 0; s < states_.size(); ++s) tensors.back().states[s] = states_[s].tensors[i];
  }
  if (options_.kind == OptimizerOptions::Kind::kAdamW) {
    const AdamW adamw = {.learning_rate = static_cast<float>(learning_rate),
                         .beta1 = options_.beta1,
                         .beta2 = options_.beta2,
                         .epsilon = options_.epsilon,
                         .weight_decay = options_.weight_decay,
                         .step = step + 1};
    kernels_.AdamWStep(adamw, gradient_factor, tensors);
  } else {
    const Sgd sgd = {.learning_rate = static_cast<float>(learning_rate),
                     .momentum = options_.momentum,
                     .weight_decay = options_.weight_decay,
                     .nesterov = options_.nesterov};
    kernels_.SgdStep(sgd, gradient_factor, tensors);
  }
}

}  // namespace lockstep
