#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "foresight/cluster.h"
#include "tools/plan/planner.h"

namespace lockstep {

// A cluster, and a number of its devices, for which a workload is planned.
struct Scenario {
  std::string cluster;  // what tells it from the other clusters of a plan
  int64_t ranks = 1;
  // Weak scaling: the batch of a step is the workload's times this.
  int64_t batch_factor = 1;
};

struct PlannedScenario {
  Scenario scenario;
  std::vector<Forecast> runs = {};  // as Search returns them

  // The best run, or null if none is possible. It may not fit.
  const Forecast* best() const {
    return runs.empty() || !runs.front().refused.ok() ? nullptr : &runs.front();
  }
};

// What the speeds of these are counted in: "tokens" or "samples" of their one workload.
inline std::string UnitOf(const std::vector<PlannedScenario>& scenarios) {
  for (const PlannedScenario& planned : scenarios) {
    if (planned.best() != nullptr) return planned.best()->unit;
  }
  return "units";
}

}  // namespace lockstep
