#pragma once

#include <optional>

#include "strategies/data_parallel/data_parallel.h"
#include "strategies/data_parallel/residency.h"

namespace lockstep {

// What is divided into shards, and how long parameters stay whole.
struct Sharding {
  Divided divided = Divided::kParameters;
  // Where parameters are divided:
  Unshard unshard = Unshard::kPass;
  // Ranks that keep a unit together between its forward and its backward, each an equal shard: 1
  // where each keeps the whole unit; by default all of mesh.dp x mesh.cp, which keep no more than
  // their shards.
  std::optional<int> neighbours = std::nullopt;
};

// Each rank keeps a shard of the optimizer state of its stages, or of their gradients or parameters
// too, block by block (FsdpUnit, ShardedGradients). Gradients are reduce-scattered, and the
// optimizer updates the shard.
DataParallelMaker MakeSharded(const Sharding& sharding);

}  // namespace lockstep
