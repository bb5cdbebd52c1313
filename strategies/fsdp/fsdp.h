#pragma once

#include "strategies/engine/preset.h"

namespace lockstep {

// Fully sharded data parallel (Rajbhandari et al., "ZeRO", SC 2020, stage 3; Zhao et al., "PyTorch
// FSDP", VLDB 2023): every rank trains its shards of the batch and keeps one shard of each block's
// parameters, gradients and optimizer state. A block's parameters are gathered before its forward,
// given back after it, and gathered again for its backward; its gradients are summed and scattered
// after that. The next block is gathered while this one computes, in both directions.
//
// With [mesh] replicas, dp ranks hold a model's shards, and each such group is one replica of it
// (hybrid sharding, HSDP): parameters are gathered within a replica only, gradients summed and
// scattered within it, and their shards then summed over the replicas.
//
// A parameter that another block uses too (a tied head) stays gathered from the first of these
// blocks to the last, in each direction.
inline StrategyDefinition FsdpStrategy() {
  return EnginePreset(
      "fsdp", {.defaults = "mesh.dp = 2", .fixed = {OneStage("fsdp_pipe"), Divides("parameters")}});
}

}  // namespace lockstep
