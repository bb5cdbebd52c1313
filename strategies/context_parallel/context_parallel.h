#pragma once

#include <memory>

#include "core/comm/communicator.h"
#include "core/config/config.h"
#include "core/config/settings.h"
#include "core/nn/model.h"
#include "core/run/strategy/local_model.h"
#include "core/run/strategy/strategy.h"
#include "strategies/context_parallel/context_ranks.h"
#include "strategies/recompute/checkpointing.h"

namespace lockstep {

// The table of the configuration:
//
//   attention ("gather")  how queries meet the keys and values of other ranks: "gather"
//                         (GatheredAttention), "ring" (RingAttention) or "ulysses"
//                         (UlyssesAttention)
inline constexpr char kContextParallelTable[] = "context_parallel";

// Whether the table is right by itself.
absl::Status CheckContextParallelOptions(const Config& config);

// Whether mesh.cp ranks can divide the model's sequences. InvalidArgument where it has none, or
// where heads do not divide among ranks that divide them.
absl::Status CheckContextParallelModel(const Config& config, const Settings& settings,
                                       const Model& model);

enum class ContextAttention { kGather, kRing, kUlysses };

// What a rank does about context parallelism beside what its strategy does: the ranks along cp have
// the same blocks and the same micro-batches, each its run of the token leaves of every sample.
// Where the mesh has no such ranks, members do nothing and cost nothing.
class ContextParallel {
 public:
  explicit ContextParallel(const StrategyInputs& inputs);

  // Has a model without memory, which this outlives, compute with this rank's tokens. Gradients are
  // summed over the ranks when a shard of the batch ends, unless data-parallel sums take them in.
  enum class Sums { kHere, kWithShards };
  Model Divide(Model model, Sums sums);

  // The fraction of a micro-batch's tokens that this rank has.
  double token_fraction() const { return 1.0 / ranks_.size(); }

  // Adds what this rank sends in a step, a schedule's runs of so many micro-batches, to those it
  // divides sequences with. Attention that is recomputed sends what forward sends again.
  void AddTraffic(const LocalModel& local_model, int micro_batches, Checkpointing checkpointing,
                  CostPrediction& prediction) const;

 private:
  Communicator& ranks_;
  const Settings& settings_;
  const ContextAttention attention_;
  const int64_t time_;                   // tokens of a sample
  std::unique_ptr<ContextGroup> group_;  // null: one rank
};

}  // namespace lockstep
