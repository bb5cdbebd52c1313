#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <unordered_set>
#include <vector>

#include "core/comm/communicator.h"
#include "core/config/cut_settings.h"
#include "core/config/settings.h"
#include "core/nn/model.h"
#include "core/optim/optimizer.h"
#include "core/run/strategy/local_model.h"
#include "core/run/strategy/strategy.h"
#include "strategies/context_parallel/context_parallel.h"
#include "strategies/expert_parallel/expert_ranks.h"
#include "strategies/recompute/checkpointing.h"

namespace lockstep {

// Whether mesh.ep ranks can divide the model's experts. InvalidArgument where it has none, where
// their number does not divide, or where a group of ranks would sum no node of the tree over shards
// and token leaves.
absl::Status CheckExpertParallelModel(const Settings& settings, const Model& model);

// What a rank does about expert parallelism beside what its strategy does. Ranks along ep have
// other tokens of the batch, and other experts of each layer; all else they have as ranks along dp
// and cp do. Where the mesh has no such ranks, members do nothing and cost nothing.
class ExpertParallel {
 public:
  explicit ExpertParallel(const StrategyInputs& inputs);

  // Gives a model without memory, which this outlives, the experts of this rank. `sums`: as
  // ContextParallel::Divide, which comes first, was told.
  Model Divide(Model model, ContextParallel::Sums sums, ShardAssignment assignment);

  // Says which gradients this rank counts in the norm, whose parts `holders` add up; where shards
  // of gradients are counted (`divided`), those of experts are among them.
  std::vector<TrainedTensor> Prepare(std::vector<TrainedTensor> trained, Divided divided) const;
  std::vector<Communicator*> holders(Divided divided) const;

  // Adds what this rank sends in a step, a schedule's runs of so many micro-batches, to the experts
  // of other ranks: as it has been in the steps so far, or before the first one as if all experts
  // got the same.
  void AddTraffic(const LocalModel& local_model, int micro_batches, Checkpointing checkpointing,
                  CostPrediction& prediction) const;

 private:
  const Mesh& mesh_;
  const Settings& settings_;
  const int64_t time_;                  // tokens of a sample
  std::unique_ptr<ExpertRanks> group_;  // null: one rank
  // The ranks along cp that have the same experts, where these sum each shard of the batch by
  // themselves; null: they do not.
  std::unique_ptr<Communicator> context_;
  std::unique_ptr<GradientGroup> same_experts_;
  std::unordered_set<std::string> divided_;  // names of parameters
};

}  // namespace lockstep
