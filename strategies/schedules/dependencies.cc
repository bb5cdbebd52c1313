#include "strategies/schedules/dependencies.h"

#include <algorithm>

namespace lockstep {
namespace {

// How a stage makes the gradient of its input: whole backward or the half.
ActionKind InputGradientKind(const Schedule& schedule, int stage, int micro_batch) {
  const std::vector<Action>& actions = schedule.ranks[schedule.rank_of_stage[stage]];
  const Action half = {ActionKind::kInputGradient, stage, micro_batch};
  return std::find(actions.begin(), actions.end(), half) != actions.end()
             ? ActionKind::kInputGradient
             : ActionKind::kBackward;
}

}  // namespace

std::vector<Action> DependenciesOf(const Schedule& schedule, const Action& action) {
  const auto [kind, stage, micro_batch] = action;
  switch (kind) {
    case ActionKind::kForward:
      if (stage == 0) return {};
      return {{ActionKind::kForward, stage - 1, micro_batch}};
    case ActionKind::kBackward:
    case ActionKind::kInputGradient: {
      std::vector<Action> needed = {{ActionKind::kForward, stage, micro_batch}};
      if (stage + 1 < schedule.stages()) {
        needed.push_back(
            {InputGradientKind(schedule, stage + 1, micro_batch), stage + 1, micro_batch});
      }
      return needed;
    }
    case ActionKind::kWeightGradient:
      return {{ActionKind::kInputGradient, stage, micro_batch}};
  }
  return {};
}

}  // namespace lockstep
