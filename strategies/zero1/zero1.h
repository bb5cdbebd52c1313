#pragma once

#include "core/run/strategy.h"

namespace lockstep {

// ZeRO stage 1 (Rajbhandari et al., "ZeRO", SC 2020): every rank takes one shard of the batch and
// keeps all parameters and gradients, but one shard of the optimizer state. Gradients are
// reduce-scattered while backward goes on, each rank updates its shard of the parameters, and the
// updated shards are gathered: the traffic of an all-reduce, with 1/n of the optimizer state. The
// bits are those of `single`.
//
// With [mesh] replicas, shards lie within groups of dp ranks, as in `fsdp`; with tp, each rank
// shards its slices of the layers.
StrategyDefinition Zero1Strategy();

}  // namespace lockstep
