#include "strategies/schedules/dependencies.h"

#include <algorithm>
#include <set>

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

std::vector<size_t> RunInOrder(
    const Schedule& schedule,
    const std::function<void(size_t, const Action&, const std::vector<Action>&)>& run) {
  std::vector<size_t> next(schedule.ranks.size(), 0);
  std::set<Action> done;
  const auto is_done = [&done](const Action& action) { return done.contains(action); };
  for (bool moved = true; moved;) {
    moved = false;
    for (size_t rank = 0; rank < next.size(); ++rank) {
      for (; next[rank] < schedule.ranks[rank].size(); ++next[rank]) {
        const Action& action = schedule.ranks[rank][next[rank]];
        const std::vector<Action> needed = DependenciesOf(schedule, action);
        if (!std::all_of(needed.begin(), needed.end(), is_done)) break;
        run(rank, action, needed);
        done.insert(action);
        moved = true;
      }
    }
  }
  return next;
}

}  // namespace lockstep
