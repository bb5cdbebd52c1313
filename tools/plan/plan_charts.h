// What a plan's page shows beside its tables.

#pragma once

#include <string>
#include <vector>

#include "tools/plan/planner.h"
#include "tools/plan/scenario.h"
#include "tools/report/report.h"

namespace lockstep {

// What each rank along pp does when, in a step, and below it the memory of the fullest rank over
// the same time. `id` begins those of the charts.
std::vector<Chart> StepCharts(const Explanation& explanation, const std::string& id);

// Time of a step over tp and pp: for each pair the best run that fits.
Drawing MeshMap(const std::vector<Forecast>& runs);

// Tokens or samples a second, and device-hours for 1e9 of them, against the number of devices: a
// line for each cluster, and for weak scaling another; a mark for each cluster if all have one
// number of ranks. Empty for a single mark. `mesh`: what runs on these devices, such as "the best
// mesh".
std::vector<Chart> ScalingCharts(const std::vector<PlannedScenario>& scenarios,
                                 const std::string& mesh);

}  // namespace lockstep
