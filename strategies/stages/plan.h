#pragma once

#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "core/config/config_reader.h"
#include "core/nn/model.h"
#include "core/report/block_profile.h"
#include "strategies/recompute/checkpointing.h"
#include "strategies/schedules/schedule.h"
#include "strategies/stages/stage_plan.h"

namespace lockstep {

// The option pipeline.balance: how many blocks each stage gets.
struct BalanceOption {
  enum class By {
    kGiven,  // [n1, n2, ...]
    kCost,   // "cost", the default: multiply-adds of a step, as the model states them
    kTime,   // "time": forward and backward, measured
    kSize,   // "size": bytes of activations, measured, and of what is kept for parameters
  };
  By by = By::kCost;
  std::vector<int64_t> given = {};
};

BalanceOption ReadBalance(ConfigReader& reader);

// Whether MakePlan needs profiles of the blocks.
bool NeedsProfiles(const BalanceOption& option);

// What stages are evened out by, for each block: multiply-adds (block_work.h), nanoseconds, or the
// bytes that a stage holds which keeps the activations of `micro_batches_in_flight` at a time.
// `profiles`: by block, for time and size.
std::vector<int64_t> BalanceCosts(const Model& model, const std::vector<BlockProfile>& profiles,
                                  BalanceOption::By by, int64_t micro_batches_in_flight);

// Whether the blocks of a model can be divided among the stages of a schedule as the option says.
absl::Status CheckPlan(const Model& model, const Schedule& schedule, const BalanceOption& option);

// Divides them, and notes what was measured and how to have the same division again. `profiles`: by
// block, if needed. Requires CheckPlan.
StagePlan MakePlan(const Model& model, const std::vector<BlockProfile>& profiles,
                   const Schedule& schedule, const BalanceOption& option);

// The part of a step for which a rank waits for others, by simulation: a stage takes as long as the
// multiply-adds of its blocks, forward and backward (block_work.h), once more forward for
// micro-batches that are recomputed, and transfers take no time.
double BubbleFraction(const Model& model, const StagePlan& plan, const Schedule& schedule,
                      Checkpointing checkpointing, int rank);

}  // namespace lockstep
