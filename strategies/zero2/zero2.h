#pragma once

#include "core/run/strategy.h"

namespace lockstep {

// ZeRO stage 2 (Rajbhandari et al., "ZeRO", SC 2020): as `zero1`, and a rank keeps one shard of the
// gradients too. With one micro-batch a step a block's whole gradients exist only until they are
// reduce-scattered; with more, gradients are accumulated whole first, in the order of `single`. The
// bits are those of `single`.
//
// With [mesh] replicas, shards lie within groups of dp ranks, as in `fsdp`; with tp, each rank
// shards its slices of the layers.
StrategyDefinition Zero2Strategy();

}  // namespace lockstep
