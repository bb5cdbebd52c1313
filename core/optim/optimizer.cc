#include "core/optim/optimizer.h"

namespace lockstep {

Optimizer::Optimizer(const OptimizerOptions& options, Kernels& kernels,
                     const std::vector<TrainedTensor>& trained)
    : options_(options), kernels_(kernels) {
  for (const std::string& name : StateNames(options.rule)) states_.push_back({name, {}});
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
  kernels_.UpdateParameters(options_.rule,
                            {.learning_rate = static_cast<float>(learning_rate),
                             .weight_decay = options_.weight_decay,
                             .gradient_factor = gradient_factor,
                             .number = step + 1},
                            tensors);
}

}  // namespace lockstep
