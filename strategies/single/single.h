#pragma once

#include "core/run/strategy/strategy.h"

namespace lockstep {

// One rank that does all the work: the reference that every other strategy is compared with. It
// runs the micro-batches of each shard in order and adds the shards up along the tree over shards,
// so that its sums are those of ranks that reduce (contract 3 of the design).
StrategyDefinition SingleStrategy();

}  // namespace lockstep
