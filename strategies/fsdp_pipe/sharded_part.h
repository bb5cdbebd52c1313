#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "core/config/settings.h"
#include "core/run/stage.h"
#include "strategies/fsdp/residency.h"
#include "strategies/fsdp/shard_groups.h"
#include "strategies/pipeline/part.h"

namespace lockstep {

// A rank's stages of a model, of which it keeps a shard: made of the units of fsdp. All tensors of
// the whole model have their names here, those of other ranks as empty ones, as with a stage that
// is not sharded.
class ShardedPart : public PipelinePart {
 public:
  ShardedPart(PartInputs inputs, Unshard unshard);

  Stage& stage() override { return stage_; }
  const Stage& stage() const override { return stage_; }

  // Its shard, in the dtype that is computed with.
  Tensor ValuesOf(const Parameter& parameter) const override;
  std::vector<TrainedTensor> Trained() const override;
  std::vector<StateTensor> State() const override;
  void RoundMasters() override;

  void BeginStep(double loss_scale) override;
  BackwardHooks Completing(const BlockRange& /*stage*/) override { return {}; }
  // Begins to sum the gradients of units that no stage here adds to any more.
  void Completed(const BlockRange& stage) override;
  // Keeps nothing whole from here on.
  void FinishGradients() override;

  std::vector<Communicator*> holders() const override { return {&groups_.shards}; }
  void AddCosts(double forwards, CostPrediction& prediction) const override;

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
  const std::function<void(const Parameter&)> await_tied_;
  int64_t tied_bytes_ = 0;                // of gradients that come from other ranks, or go there
  std::unique_ptr<Residency> residency_;  // hangs on the stage's blocks
  Stage stage_;
  std::vector<int> to_complete_;  // of this step, by unit: ranges that still add to it
  std::vector<FsdpUnit*> under_way_;
};

PartMaker MakeShardedPart(Unshard unshard);

}  // namespace lockstep
