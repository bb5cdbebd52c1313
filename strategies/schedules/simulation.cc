#include "strategies/schedules/simulation.h"

#include <algorithm>
#include <map>

#include "glog/logging.h"
#include "strategies/schedules/dependencies.h"

namespace lockstep {

double StageCosts::Of(ActionKind kind) const {
  if (kind == ActionKind::kForward) return forward;
  return (ReachesInputs(kind) ? input_gradient : 0) + (EndsBackward(kind) ? weight_gradient : 0);
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
  std::map<Action, double> ended;
  RunInOrder(schedule, [&](size_t rank, const Action& action, const std::vector<Action>& needed) {
    std::vector<Simulation::Timed>& done = simulation.ranks[rank];
    double begin = done.empty() ? 0 : done.back().end;
    for (const Action& other : needed) {
      const bool is_here = schedule.rank_of_stage[other.stage] == static_cast<int>(rank);
      begin = std::max(begin, ended.at(other) + (is_here ? 0 : transfer));
    }
    const double end = begin + costs[action.stage].Of(action.kind);
    done.push_back({action, begin, end});
    ended[action] = end;
    simulation.total = std::max(simulation.total, end);
  });
  for (size_t rank = 0; rank < schedule.ranks.size(); ++rank) {
    CHECK_EQ(simulation.ranks[rank].size(), schedule.ranks[rank].size()) << "not validated";
  }
  return simulation;
}

}  // namespace lockstep
