#include "core/train/updater.h"

namespace lockstep {

Updater::Updater(Rank& rank, const Settings& settings, const std::vector<TrainedTensor>& trained)
    : rank_(rank), settings_(settings), optimizer_(settings.optimizer, rank.kernels, trained) {}

StepResult Updater::Step(int64_t step, const std::vector<TrainedTensor>& trained,
                         const NormReduction& reduction) {
  StepTimer::Scope scope(rank_.timer, Phase::kOptimizer);
  StepResult result;
  result.gradient_norm = GradientNorm(rank_.kernels, trained, reduction);
  result.learning_rate = settings_.schedule.RateAt(step);
  optimizer_.Step(step, result.learning_rate, ClipFactor(result.gradient_norm, settings_.clip_norm),
                  trained);
  return result;
}

std::vector<StateTensor> Updater::State(const std::vector<StateTensor>& parameters) {
  std::vector<StateTensor> state;
  for (const Optimizer::State& kind : optimizer_.states()) {
    for (size_t i = 0; i < kind.tensors.size(); ++i) {
      StateTensor tensor = parameters[i];
      tensor.name = "optimizer." + kind.kind + "." + tensor.name;
      tensor.tensor = kind.tensors[i];
      state.push_back(std::move(tensor));
    }
  }
  return state;
}

}  // namespace lockstep
