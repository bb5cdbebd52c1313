#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "core/comm/mesh.h"
#include "core/config/cut_settings.h"
#include "core/run/strategy/local_model.h"
#include "core/run/strategy/shard_sum.h"

namespace lockstep {

// The sums of a local model's batch statistics over shards of the batch and data-parallel ranks,
// along the tree over shards. Where ranks have runs of shards, each sums its own first, and then
// ranks sum theirs. Where they have strides, ranks sum each round of shards, all rounds in one
// collective, and each adds the rounds up. Ranks along cp sum what their tokens give: counts alone,
// whose sums are exact in any order.
class StatisticsSums {
 public:
  // The model outlives it.
  StatisticsSums(LocalModel& local_model, const Settings& settings, ShardAssignment assignment);

  // After the last forward of a shard through a range: its layers' statistics begin anew.
  void EndShard(const BlockRange& blocks);
  // Once a step, after all shards: the model's statistics() become the sums of the global batch's.
  // Throws StatusException.
  void Sum(const Mesh& mesh);

  // Adds the bytes of partial sums, and what this rank sends in a step. Nothing without statistics.
  void AddCosts(const Mesh& mesh, CostPrediction& prediction) const;

 private:
  // A range of blocks with layers that gather statistics.
  struct Stage {
    int64_t first_block;
    std::vector<RunningStatistics*> layers;
    int64_t offset;  // of its sums in the model's
    Tensor sums;
    std::optional<ShardSum> sum;  // over the rank's shards, where it has a run of them
    int64_t ended = 0;            // shards of the step
  };
  // Where it has a stride of them.
  struct Rounds {
    Tensor sums;   // [shards, statistics]: of each round
    ShardSum sum;  // over the rounds
  };

  LocalModel& local_model_;
  std::vector<Stage> stages_;
  std::optional<Rounds> rounds_;
};

}  // namespace lockstep
