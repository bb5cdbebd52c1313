#pragma once

#include <cstdint>
#include <vector>

#include "core/config/settings.h"
#include "core/optim/gradient_norm.h"
#include "core/optim/loss_scale.h"
#include "core/optim/optimizer.h"
#include "core/run/strategy/rank.h"
#include "core/run/strategy/strategy.h"

namespace lockstep {

// The end of a step: norm of the gradients, unscaling, clipping, learning rate, and the optimizer's
// update of what this rank trains. A step whose gradients are infinite or NaN on any rank of the
// world is skipped on all, if losses are scaled: no parameter, no moment and no count of steps
// changes. Otherwise train.on_nan says: the run stops behind the step, with nothing updated, or
// the update is done. Where it stops because the loss itself is infinite or NaN, which no lower
// scale mends, the loss scale stays as well: the step can be repeated with the same bits.
class Updater {
 public:
  // `trained` keeps its order for the updater's life; its gradients may be swapped between steps.
  // They lie on all ranks of a grid along the axes `holders`, each element counted by one of them.
  Updater(Rank& rank, const Settings& settings, const std::vector<TrainedTensor>& trained,
          std::vector<Communicator*> holders = {});

  // What the loss is to be multiplied by in the next step.
  double loss_scale() const { return loss_scale_.scale(); }

  // Returns the result of a step whose loss, without the loss scale, is `loss`, the same on all
  // ranks. Throws StatusException when the loss scale has fallen below 1.
  StepResult Step(int64_t step, double loss, const std::vector<TrainedTensor>& trained);

  // The optimizer's state and the loss scale's. `parameters` describe the trained tensors, in their
  // order.
  std::vector<StateTensor> State(const std::vector<StateTensor>& parameters);
  // What State returned has been filled from a checkpoint.
  void Restored();

  // Adds what this costs: the bytes kept for each trained parameter, and the traffic of agreeing on
  // an overflow.
  void AddTo(CostPrediction& prediction) const;
  // Adds what the norm sends in a step, label "norm": along each axis the largest magnitude, and
  // three bins of a sum of squares.
  void AddNormTraffic(CostPrediction& prediction) const;

 private:
  bool AgreeOnOverflow(bool own);
  void KeepLossScale();

  Rank& rank_;
  const Settings& settings_;
  const std::vector<Communicator*> holders_;  // axes of several ranks
  const NormReduction norm_;
  Optimizer optimizer_;
  LossScale loss_scale_;
  Tensor loss_scale_state_;  // for checkpoints; undefined where losses are not scaled
  std::vector<CostPrediction::PerParameter> per_parameter_;
};

}  // namespace lockstep
