#pragma once

#include "strategies/engine/preset.h"

namespace lockstep {

// Fully sharded data parallel within each stage of a pipeline: the model's blocks are cut into
// stages along pp, as `gpipe` does, and the dp ranks that hold the same stage keep a shard each of
// its parameters, gradients and optimizer state, as `fsdp` does. Gradients are reduced once a step,
// after the last micro-batch.
inline StrategyDefinition FsdpPipeStrategy() {
  return EnginePreset("fsdp_pipe", {.defaults = R"(
mesh = {pp = 2, dp = 2}
pipeline.schedule = "1f1b"
data_parallel.unshard = "step"
recompute.micro_batches = "except_last"
)",
                                    .fixed = {Divides("parameters")}});
}

}  // namespace lockstep
