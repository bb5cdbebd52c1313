#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "core/nn/model.h"
#include "core/train/settings.h"
#include "core/train/strategy.h"
#include "strategies/ddp/gradient_reducer.h"
#include "strategies/gpipe/schedule.h"
#include "strategies/pipeline/schedule_runner.h"
#include "strategies/stages/stage_plan.h"

namespace lockstep {

// What makes a pipeline out of a model.
struct PipelineOptions {
  StagePlan plan;
  Schedule schedule;  // accepted by Validate, for the stages of the plan
  Checkpointing checkpointing = Checkpointing::kNever;
  BucketLimits buckets;
};

// The plan for a schedule: the model's blocks divided among its stages. `balance` says how many
// blocks each has, empty: an even division by cost (balance.h); `key` is its name in the
// configuration. InvalidArgument when there is none.
absl::StatusOr<StagePlan> PlanStages(const Model& model, const Schedule& schedule,
                                     const std::vector<int64_t>& balance, const std::string& key);

// Trains a model whose blocks are divided among the ranks along pp, by a schedule; with replicas of
// all stages along dp, whose gradients are summed as ddp does, and layers divided along tp.
std::unique_ptr<Strategy> MakePipeline(StrategyInputs inputs, PipelineOptions options);

}  // namespace lockstep
