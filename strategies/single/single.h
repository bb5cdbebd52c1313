#pragma once

#include "core/train/strategy.h"

namespace lockstep {

// One rank that does all the work: the reference that every other strategy is compared with. It
// runs the micro-batches of each shard in order and adds the shards up in order, so that its sums
// have the order in which ranks reduce (contract 3 of the design).
StrategyDefinition SingleStrategy();

}  // namespace lockstep
