#pragma once

#include "core/run/strategy.h"

namespace lockstep {

// Fully sharded data parallel within each stage of a pipeline: the model's blocks are cut into
// stages along pp, as `gpipe` does, and the dp ranks that hold the same stage keep a shard each of
// its parameters, gradients and optimizer state, as `fsdp` does. Gradients are reduced once a step,
// after the last micro-batch.
//
// With [mesh] replicas, shards lie within groups of dp ranks, as in `fsdp`. With tp ranks, layers
// are divided as in `tp`. The bits are those of `single` (with tp: of `tp`) with as many shards and
// micro-batches.
//
// Options, table [fsdp_pipe] (and [tp], see there; [recompute] has micro_batches = "except_last"):
//
// unshard ("step"): how often a stage's parameters are gathered. "step": for its first micro-batch,
// and they stay until its last; "micro_batch": a block at a time, for each forward and each
// backward, which takes the memory of two blocks instead of all the stage's. Not with schedules
// that halve backwards: the gradients of weights would need the parameters once more.
//
// schedule, schedule_file, stages_per_rank, balance: those of `gpipe`.
StrategyDefinition FsdpPipeStrategy();

}  // namespace lockstep
