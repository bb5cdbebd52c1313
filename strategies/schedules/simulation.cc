#include "strategies/schedules/simulation.h"

#include <algorithm>
#include <map>
#include <optional>
#include <tuple>

#include "glog/logging.h"
#include "strategies/schedules/dependencies.h"

namespace lockstep {

double StageCosts::Of(ActionKind kind) const {
  switch (kind) {
    case ActionKind::kForward:
      return forward;
    case ActionKind::kBackward:
      return input_gradient + weight_gradient;
    case ActionKind::kInputGradient:
      return input_gradient;
    case ActionKind::kWeightGradient:
      return weight_gradient;
  }
  return 0;
}

double Simulation::bubble_fraction() const {
  double busy = 0;
  for (const std::vector<Timed>& rank : ranks) {
    for (const Timed& timed : rank) busy += timed.end - timed.begin;
  }
  const double all = total * static_cast<double>(ranks.size());
  return all > 0 ? 1 - busy / all : 0;
}

Simulation Simulate(const Schedule& schedule, const std::vector<StageCosts>& costs,
                    double transfer) {
  CHECK_EQ(costs.size(), schedule.rank_of_stage.size());
  Simulation simulation;
  simulation.ranks.resize(schedule.ranks.size());
  std::map<std::tuple<ActionKind, int, int>, double> ended;
  // When the next action of a rank can begin, if all that it needs has been done.
  const auto ready = [&](size_t rank) -> std::optional<double> {
    const std::vector<Simulation::Timed>& done = simulation.ranks[rank];
    double begin = done.empty() ? 0 : done.back().end;
    for (const Action& needed : DependenciesOf(schedule, schedule.ranks[rank][done.size()])) {
      const auto end = ended.find({needed.kind, needed.stage, needed.micro_batch});
      if (end == ended.end()) return std::nullopt;
      const bool is_here = schedule.rank_of_stage[needed.stage] == static_cast<int>(rank);
      begin = std::max(begin, end->second + (is_here ? 0 : transfer));
    }
    return begin;
  };
  for (bool moved = true; moved;) {
    moved = false;
    for (size_t rank = 0; rank < schedule.ranks.size(); ++rank) {
      while (simulation.ranks[rank].size() < schedule.ranks[rank].size()) {
        const std::optional<double> begin = ready(rank);
        if (!begin) break;
        const Action& action = schedule.ranks[rank][simulation.ranks[rank].size()];
        const double end = *begin + costs[action.stage].Of(action.kind);
        simulation.ranks[rank].push_back({action, *begin, end});
        ended[{action.kind, action.stage, action.micro_batch}] = end;
        simulation.total = std::max(simulation.total, end);
        moved = true;
      }
    }
  }
  for (size_t rank = 0; rank < schedule.ranks.size(); ++rank) {
    CHECK_EQ(simulation.ranks[rank].size(), schedule.ranks[rank].size()) << "not validated";
  }
  return simulation;
}

}  // namespace lockstep
