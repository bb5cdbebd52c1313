#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "core/config/settings.h"
#include "core/run/local_model.h"
#include "strategies/data_parallel/data_parallel.h"
#include "strategies/data_parallel/gradient_sums.h"
#include "strategies/data_parallel/residency.h"
#include "strategies/data_parallel/shard_groups.h"

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
// too, block by block (FsdpUnit). Gradients are reduce-scattered, and the optimizer updates the
// shard.
class Sharded : public DataParallel {
 public:
  Sharded(DataParallelInputs inputs, const Sharding& sharding);

  LocalModel& local_model() override { return local_model_; }
  const LocalModel& local_model() const override { return local_model_; }

  // Its shard, in the dtype that is computed with.
  Tensor ValuesOf(const Parameter& parameter) const override;
  std::vector<TrainedTensor> Trained() const override;
  std::vector<StateTensor> State() const override;
  void RoundMasters() override;
  void ShareValues() override;
  void ShareUpdates() override;

  void BeginStep(double loss_scale) override;
  // Begins to sum the gradients of units that no stage here adds to any more: while the backward
  // that completes them goes on, where the rank has one stage, or behind it.
  BackwardHooks Completing(const BlockRange& stage) override;
  void Completed(const BlockRange& stage) override;
  // Keeps nothing whole from here on.
  void FinishGradients() override;

  std::vector<Communicator*> holders() const override { return {&groups_.shards}; }
  void AddCosts(double forwards, CostPrediction& prediction) const override;

 private:
  void MakeValues(Model& model, const ModelLayout& layout, int place);
  // What a backward does when it has left the blocks that use a unit.
  void Leave(FsdpUnit& unit);
  void Reduce(FsdpUnit& unit);
  // The ranges that still add to a unit's gradients in this step.
  int& RangesToCome(const FsdpUnit& unit);
  bool divides_parameters() const { return groups_.divided == Divided::kParameters; }
  // Bytes of parameters, and of gradients of units, that exist at one time beside what is kept.
  int64_t PeakWholeBytes(bool recomputes) const;
  int64_t PeakGradientBytes() const;
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
  const std::function<void(const Parameter&)> await_tied_;
  std::unique_ptr<Residency> residency_;  // hangs on the local model's blocks
  LocalModel local_model_;
  GradientSums sums_;
  std::vector<int> ranges_to_come_;  // of this step, by unit
  bool completing_ = false;          // a backward that completes gradients is going on
};

DataParallelMaker MakeSharded(const Sharding& sharding);

}  // namespace lockstep
