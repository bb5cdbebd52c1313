#pragma once

#include "strategies/engine/preset.h"

namespace lockstep {

// ZeRO stage 1 (Rajbhandari et al., "ZeRO", SC 2020): every rank keeps all parameters and
// gradients, but one shard of the optimizer state. Gradients are reduce-scattered while backward
// goes on, each rank updates its shard of the parameters, and the updated shards are gathered: the
// traffic of an all-reduce, with 1/n of the optimizer state. The bits are those of `single`.
inline StrategyDefinition Zero1Strategy() {
  return EnginePreset("zero1", {.defaults = "mesh.dp = 2", .fixed = {Divides("optimizer")}});
}

}  // namespace lockstep
