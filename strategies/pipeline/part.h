#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "core/checkpoint/checkpoint.h"
#include "core/comm/communicator.h"
#include "core/config/settings.h"
#include "core/optim/optimizer.h"
#include "core/run/stage.h"
#include "core/run/stage_pass.h"
#include "core/run/strategy.h"

namespace lockstep {

// A rank's stages of a model, and what it does with the ranks that have the same stages and other
// shards of the batch: each keeps all of their parameters and gradients are summed, or each keeps a
// part. Members throw StatusException.
class PipelinePart {
 public:
  virtual ~PipelinePart() = default;

  virtual Stage& stage() = 0;
  virtual const Stage& stage() const = 0;

  // What this rank holds of a parameter's values, which has one tied to it on another rank or is
  // tied to such a one: the same elements on both. See TiedParameters.
  virtual Tensor ValuesOf(const Parameter& parameter) const = 0;
  // Of all parameters of the model, in its order, as Stage has them; gradients in their memory.
  virtual std::vector<TrainedTensor> Trained() const = 0;
  // Those that are trained, in this order, then what is frozen, and the running estimates. Of what
  // several shards hold, one is the writer.
  virtual std::vector<StateTensor> State() const = 0;
  // After the masters have changed by other means than the optimizer.
  virtual void RoundMasters() = 0;

  // Of a step, in this order: before its first micro-batch; around the backward that completes the
  // gradients of one of the stages, and when all its backwards are done; and when that is so for
  // all stages: returns once gradients are summed over the shards.
  virtual void BeginStep(double loss_scale) = 0;
  virtual BackwardHooks Completing(const BlockRange& stage) = 0;
  virtual void Completed(const BlockRange& stage) = 0;
  virtual void FinishGradients() = 0;

  // The ranks between which gradients are divided, for their norm; none where each has all.
  virtual std::vector<Communicator*> holders() const = 0;
  // Adds memory, and traffic among the shards. `forwards`: how often a micro-batch runs forward, in
  // the mean.
  virtual void AddCosts(double forwards, CostPrediction& prediction) const = 0;
};

// What a part is made from.
struct PartInputs {
  Rank& rank;
  Model model;  // without memory
  std::vector<BlockRange> stages;
  // Whether the schedule halves backwards: gradients of inputs first, those of weights later.
  bool halves_backwards;
  const Settings& settings;
  int64_t targets_per_sample;
  // Called for a parameter here when nothing adds to its gradient any more, before the gradients of
  // parameters that are tied to it are added. Returns when those have come.
  std::function<void(const Parameter&)> await_tied;
};
using PartMaker = std::function<std::unique_ptr<PipelinePart>(PartInputs inputs)>;

}  // namespace lockstep
