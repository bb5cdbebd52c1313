#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "core/optim/gradient_norm.h"
#include "core/optim/optimizer.h"
#include "core/train/rank.h"
#include "core/train/settings.h"
#include "core/train/strategy.h"

namespace lockstep {

// The end of a step: norm of the gradients, clipping, learning rate, and the optimizer's update of
// what this rank trains.
class Updater {
 public:
  // `trained` keeps its order for the updater's life; its gradients may be swapped between steps.
  Updater(Rank& rank, const Settings& settings, const std::vector<TrainedTensor>& trained);

  // Returns the result of the step but the loss.
  StepResult Step(int64_t step, const std::vector<TrainedTensor>& trained,
                  const NormReduction& reduction = {});

  // The optimizer's state. `parameters` describe the trained tensors, in their order.
  std::vector<StateTensor> State(const std::vector<StateTensor>& parameters);

 private:
  Rank& rank_;
  const Settings& settings_;
  Optimizer optimizer_;
};

}  // namespace lockstep
