#pragma once

#include "core/comm/communicator.h"
#include "core/layout/model_layout.h"

namespace lockstep {

// What a rank divides with others, and with whom.
struct ShardGroups {
  // Each keeps one shard of every unit, always.
  Communicator& shards;
  // Those of `shards` next to this rank that keep a unit together between its forward and its
  // backward, each an equal shard: all of them (these are the shards of every unit), fewer, or this
  // rank alone, which keeps the whole.
  Communicator& neighbours;
  // Those that keep the same shard, and train it on other shards of the batch.
  Communicator& replicas;
  Divided divided = Divided::kParameters;
};

}  // namespace lockstep
