#pragma once

#include <vector>

#include "strategies/schedules/schedule.h"

namespace lockstep {

// How long the actions of one stage take, in any unit.
struct StageCosts {
  double forward = 1;
  double input_gradient = 1;
  double weight_gradient = 1;

  double Of(ActionKind kind) const;
};

// When everything happens if nothing but the schedule's order and the transfers hold it up.
struct Simulation {
  struct Timed {
    Action action;
    double begin = 0, end = 0;
  };
  std::vector<std::vector<Timed>> ranks;  // by rank, in the schedule's order
  double total = 0;                       // until the last rank has ended

  // The part of all ranks' time that is spent waiting.
  double bubble_fraction() const;
};

// Runs a schedule that Validate accepts. `costs` by stage; `transfer`: from the end of an action to
// the moment when another rank has its result.
Simulation Simulate(const Schedule& schedule, const std::vector<StageCosts>& costs,
                    double transfer = 0);

}  // namespace lockstep
