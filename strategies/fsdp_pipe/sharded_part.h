#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "core/train/rank.h"
#include "core/train/settings.h"
#include "core/train/stage.h"
#include "core/train/strategy.h"
#include "strategies/fsdp/residency.h"
#include "strategies/fsdp/shard_groups.h"

namespace lockstep {

// A rank's stages of a model, of which it keeps a shard: the part of a pipeline made of the units
// of fsdp. All tensors of the whole model have their names here, those of other ranks as empty
// ones, as with a stage that is not sharded.
class ShardedPart {
 public:
  // Of a model without memory. `shards` hold the same stages. All outlive it.
  ShardedPart(Rank& rank, Model model, const std::vector<BlockRange>& ranges, Communicator& shards,
              Unshard unshard, const Settings& settings, int64_t targets_per_sample);

  Stage& stage() { return stage_; }
  const Stage& stage() const { return stage_; }

  // The shard of a parameter here that is tied to one of another rank, or has one tied to it, in
  // the dtype that is computed with.
  Tensor ShardOf(const Parameter& parameter) const;

  // In the order of the model; State has what is frozen behind what is trained.
  std::vector<TrainedTensor> Trained() const;
  std::vector<StateTensor> State() const;

  // Of a step, in this order: before its first micro-batch; when the backwards of one of the ranges
  // are done, which begins to sum the gradients of units that nothing here adds to any more; and
  // when that is done for all of them, which waits for the sums and keeps nothing whole. `await` is
  // called for each parameter before its gradient and those tied to it are added up.
  void BeginStep(double loss_scale);
  void Complete(const BlockRange& blocks, const std::function<void(const Parameter&)>& await);
  void EndStep();

  // After the masters have changed by other means than the optimizer.
  void RoundMasters();

  // Traffic and memory of sharding. `forwards`: how often a micro-batch runs forward, in the mean.
  void Predict(double forwards, CostPrediction& prediction) const;

 private:
  Tensor Nothing(DType dtype) const;

  void MakeValues(Model& model, const std::vector<BlockRange>& ranges);
  void AllocateTiedGradients(const Model& model, const std::vector<BlockRange>& ranges);
  // Bytes of parameters that exist at one time beside the shards.
  int64_t PeakWholeBytes() const;
  // Sent by this rank in a step to gather what its passes use.
  double GatherBytes(double forwards) const;

  Kernels& kernels_;
  const Settings& settings_;
  const ShardGroups groups_;
  const Unshard unshard_;
  int64_t tied_bytes_ = 0;                // of gradients that come from other ranks, or go there
  std::unique_ptr<Residency> residency_;  // hangs on the stage's blocks
  Stage stage_;
  std::vector<int> to_complete_;  // of this step, by unit: ranges that still add to it
  std::vector<FsdpUnit*> under_way_;
};

}  // namespace lockstep
