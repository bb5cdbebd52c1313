#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "core/config/settings.h"
#include "core/run/local_model.h"
#include "strategies/data_parallel/data_parallel.h"
#include "strategies/data_parallel/residency.h"
#include "strategies/data_parallel/shard_groups.h"
#include "strategies/data_parallel/sharded_gradients.h"

namespace lockstep {

// What is divided into shards, and how long parameters stay whole.
struct Sharding {
  Divided divided = Divided::kParameters;
  // Where parameters are divided:
  Unshard unshard = Unshard::kPass;
  // Ranks that keep a unit together between its forward and its backward, each an equal shard: 1
  // where each keeps the whole unit; by default all of mesh.dp, which keep no more than their
  // shards.
  std::optional<int> neighbours = std::nullopt;
};

// Each rank keeps a shard of the optimizer state of its stages, or of their gradients or parameters
// too, block by block (FsdpUnit, ShardedGradients). Gradients are reduce-scattered, and the
// optimizer updates the shard.
class Sharded : public DataParallel {
 public:
  Sharded(DataParallelInputs inputs, const Sharding& sharding);

  LocalModel& local_model() override { return local_model_; }
  const LocalModel& local_model() const override { return local_model_; }

  // Its shard, in the dtype that is computed with.
  Tensor ValuesOf(const Parameter& parameter) const override;
  Tensor GradientOf(const Parameter& use) const override { return gradients_->Held(use); }
  std::vector<TrainedTensor> Trained() const override;
  std::vector<StateTensor> State() const override;
  void RoundMasters() override;
  void ShareValues() override;
  void ShareUpdates() override;

  void BeginStep(double loss_scale) override;
  // Begins to sum the gradients of blocks that nothing adds to any more: while the backward that
  // completes them goes on, where the rank has one stage, or behind it.
  BackwardHooks Completing(const BlockRange& stage, int64_t shard) override;
  void Completed(const BlockRange& stage, int64_t shard) override;
  // Keeps nothing whole from here on.
  void FinishGradients() override;

  std::vector<Communicator*> holders() const override { return {&groups_.shards}; }
  void AddCosts(double forwards, CostPrediction& prediction) const override;

 private:
  void MakeValues(Model& model, const ModelLayout& layout, int place);
  bool divides_parameters() const { return groups_.divided == Divided::kParameters; }
  // Bytes of parameters that exist at one time beside what is kept.
  int64_t PeakWholeBytes(bool recomputes) const;
  // Where parameters stay whole: gathers those of units and tied copies for which `chosen` says so.
  // Tied copies have no unit here.
  void GatherWholes(const std::function<bool(const Parameter&)>& chosen);
  // Sent by this rank in a step to gather what its passes use.
  double GatherBytes(double forwards) const;

  Kernels& kernels_;
  const Settings& settings_;
  Communicator& ranks_;                       // with the same stages and other shards of the batch
  std::unique_ptr<Communicator> neighbours_;  // null: all that hold shards
  const ShardGroups groups_;
  const Unshard unshard_;
  const bool sums_in_backward_;
  const std::vector<StageBackward> backwards_;  // of a step
  // These two hang on the local model's blocks.
  std::unique_ptr<Residency> residency_;
  std::unique_ptr<ShardedGradients> gradients_;
  LocalModel local_model_;
  const ShardedGradients::EndShardFunction end_shard_ = [this](Parameter& use) {
    return local_model_.EndShard(use);
  };
};

DataParallelMaker MakeSharded(const Sharding& sharding);

}  // namespace lockstep
