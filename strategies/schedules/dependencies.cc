#include "strategies/schedules/dependencies.h"

#include <algorithm>

namespace lockstep {

Dependencies::Dependencies(const Schedule& schedule)
    : schedule_(schedule), is_listed_(MostActions(schedule)) {
  for (const std::vector<Action>& actions : schedule.ranks) {
    for (const Action& action : actions) is_listed_[IndexOf(schedule, action)] = true;
  }
}

std::vector<Action> Dependencies::Of(const Action& action) const {
  const auto [kind, stage, micro_batch] = action;
  switch (kind) {
    case ActionKind::kForward:
      if (stage == 0) return {};
      return {{ActionKind::kForward, stage - 1, micro_batch}};
    case ActionKind::kBackward:
    case ActionKind::kInputGradient: {
      std::vector<Action> needed = {{ActionKind::kForward, stage, micro_batch}};
      if (stage + 1 < schedule_.stages()) {
        const Action half = {ActionKind::kInputGradient, stage + 1, micro_batch};
        const Action whole = {ActionKind::kBackward, stage + 1, micro_batch};
        needed.push_back(is_listed_[IndexOf(schedule_, half)] ? half : whole);
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
  const Dependencies dependencies(schedule);
  std::vector<bool> done(MostActions(schedule));
  const auto is_done = [&](const Action& action) { return done[IndexOf(schedule, action)]; };
  for (bool moved = true; moved;) {
    moved = false;
    for (size_t rank = 0; rank < next.size(); ++rank) {
      for (; next[rank] < schedule.ranks[rank].size(); ++next[rank]) {
        const Action& action = schedule.ranks[rank][next[rank]];
        const std::vector<Action> needed = dependencies.Of(action);
        if (!std::all_of(needed.begin(), needed.end(), is_done)) break;
        run(rank, action, needed);
        done[IndexOf(schedule, action)] = true;
        moved = true;
      }
    }
  }
  return next;
}

}  // namespace lockstep
