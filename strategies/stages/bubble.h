#pragma once

#include "core/nn/model.h"
#include "strategies/recompute/checkpointing.h"
#include "strategies/schedules/schedule.h"
#include "strategies/stages/stage_plan.h"

namespace lockstep {

// The part of a step for which a rank waits for others, by simulation: a stage takes as long as the
// multiply-adds of its blocks, forward and backward (block_work.h), once more forward for
// micro-batches that are recomputed, and transfers take no time.
double BubbleFraction(const Model& model, const StagePlan& plan, const Schedule& schedule,
                      Checkpointing checkpointing, int rank);

}  // namespace lockstep
