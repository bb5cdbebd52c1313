#pragma once

#include "absl/status/status.h"
#include "core/nn/model.h"
#include "core/run/strategy.h"
#include "strategies/schedules/schedule.h"
#include "strategies/stages/balance_option.h"
#include "strategies/stages/stage_plan.h"

namespace lockstep {

// Whether the blocks of a model can be divided among the stages of a schedule as the option says.
absl::Status CheckPlan(const Model& model, const Schedule& schedule, const BalanceOption& option);

// Divides them. Called by all ranks together: see FindBalance. Requires CheckPlan.
StagePlan MakePlan(const StrategyInputs& inputs, const Schedule& schedule,
                   const BalanceOption& option);

}  // namespace lockstep
