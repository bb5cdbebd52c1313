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
  // Number of ranks that keep a unit together between its forward and its backward, each an equal
  // shard. 1: each rank keeps the whole unit. By default all ranks of mesh.dp x mesh.cp: each keeps
  // only the shard that is its own.
  std::optional<int> neighbours = std::nullopt;
};

// Makes the mechanism in which each rank keeps a shard of its stages' optimizer state, and, block
// by block, of their gradients and parameters too if `sharding` divides these (FsdpUnit,
// ShardedGradients). Gradients are reduce-scattered, and the optimizer updates the shard.
DataParallelMaker MakeSharded(const Sharding& sharding);

}  // namespace lockstep
