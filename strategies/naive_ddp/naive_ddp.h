#pragma once

#include "core/run/strategy/strategy.h"

namespace lockstep {

// Distributed data parallel in its plainest form, to be read before the engine: every rank holds
// the whole model, takes its shards of the batch, and sums each gradient over the ranks when its
// backward is over. `ddp` does the same in buckets while backward goes on. The bits are those of
// `single`.
StrategyDefinition NaiveDdpStrategy();

}  // namespace lockstep
