#pragma once

#include "strategies/engine/preset.h"

namespace lockstep {

// Distributed data parallel (Li et al., "PyTorch Distributed", VLDB 2020): every rank holds the
// whole model and trains its shards of the batch. Gradients are summed over the ranks in buckets,
// each launched while backward goes on as soon as it is complete, always in the same order; earlier
// micro-batches of a step only accumulate. Batch statistics and the loss are summed once a step, so
// that all replicas stay the same to the bit.
inline StrategyDefinition DdpStrategy() {
  return EnginePreset("ddp", {.defaults = "mesh.dp = 2",
                              .fixed = {OneStage("layerwise or gpipe"), NothingDivided()}});
}

}  // namespace lockstep
