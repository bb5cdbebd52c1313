#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include "core/checkpoint/checkpoint.h"
#include "core/comm/communicator.h"
#include "core/config/settings.h"
#include "core/layout/model_layout.h"
#include "core/optim/optimizer.h"
#include "core/run/strategy/local_model.h"
#include "core/run/strategy/stage_pass.h"
#include "core/run/strategy/strategy.h"

namespace lockstep {

// The mechanism between data-parallel ranks, which train the same stages on different shards of the
// batch: how parameters and gradients of the stages are held, and how gradients are summed. It owns
// the rank's local model. Members throw StatusException.
class DataParallel {
 public:
  virtual ~DataParallel() = default;

  virtual LocalModel& local_model() = 0;
  virtual const LocalModel& local_model() const = 0;

  // What this rank holds of the values of a parameter that is tied across ranks, and of the summed
  // gradient of any use. A tied parameter's uses hold the same elements on all ranks of a tie
  // (TiedParameters).
  virtual Tensor ValuesOf(const Parameter& parameter) const = 0;
  virtual Tensor GradientOf(const Parameter& use) const = 0;
  // One tensor for each trained parameter of the whole model, in the model's order; empty tensors
  // for parameters that this rank does not hold. Gradients have their memory.
  virtual std::vector<TrainedTensor> Trained() const = 0;
  // For checkpoints: the trained parameters in the order of Trained(), then frozen parameters and
  // running estimates, as the stage's layout places them.
  virtual std::vector<StateTensor> State() const = 0;
  // Rounds masters to the compute dtype, after other code than the optimizer has changed them.
  virtual void RoundMasters() = 0;
  // Brings what this rank holds of other ranks' shards up to date, after all values have changed,
  // or after the optimizer has updated those that are trained.
  virtual void ShareValues() = 0;
  virtual void ShareUpdates() = 0;

  // The calls of a training step, in this order.
  // Before the first micro-batch.
  virtual void BeginStep(double loss_scale) = 0;
  // Returns the hooks for the backward that completes a stage's gradients of one shard, `shard` in
  // the order of the rank's.
  virtual BackwardHooks Completing(const BlockRange& stage, int64_t shard) = 0;
  // After the last backward of a shard's through a stage.
  virtual void Completed(const BlockRange& stage, int64_t shard) = 0;
  // After all stages: returns when gradients are summed over the data-parallel ranks, those of tied
  // parameters by themselves.
  virtual void FinishGradients() = 0;

  // The communicators between whose ranks gradients are divided, for the gradients' norm; empty
  // where each rank has all gradients of its stages.
  virtual std::vector<Communicator*> holders() const = 0;
  // Adds memory, and traffic between data-parallel ranks. `forwards`: how often a micro-batch runs
  // forward on average, recomputation included.
  virtual void AddCosts(double forwards, CostPrediction& prediction) const = 0;
};

// One of a rank's backwards through a stage, as its step has them in order.
struct StageBackward {
  BlockRange stage;
  bool reaches_inputs = true;  // runs through the blocks, and is not the later half of one
  bool ends_shard = false;     // no other adds to these blocks' gradients of the shard
};

// What the mechanism is made from.
struct DataParallelInputs {
  Rank& rank;
  std::shared_ptr<const std::vector<ModelTensor>> tensors;  // as StrategyInputs::tensors
  Model model;                                              // this rank's share, without memory
  ModelLayoutOptions layout;  // all but what is divided, which the mechanism decides
  // Whether the schedule halves backwards: gradients of inputs first, those of weights later.
  bool halves_backwards;
  std::vector<StageBackward> backwards;  // of a step
  const Settings& settings;
  int64_t targets_per_sample;
  // Whether the mechanism's sums take in the tokens that ranks along cp have (SumsTokens); else
  // these ranks sum each shard's gradients first, and have the same ones here.
  bool sums_tokens = true;

  ModelLayout MakeLayout(Divided divided) {
    layout.divided = divided;
    return {std::move(tensors), std::move(layout)};
  }
};
using DataParallelMaker = std::function<std::unique_ptr<DataParallel>(DataParallelInputs inputs)>;

}  // namespace lockstep
