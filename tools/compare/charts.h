// The charts of a comparison. Those that would have nothing to show are none.

#pragma once

#include <string>
#include <vector>

#include "tools/compare/comparison.h"
#include "tools/report/report.h"

namespace lockstep {

// Loss curves on top of each other, and below them how far each is from its reference; memory of
// each rank; time of a step; throughput against ranks where a strategy ran on several numbers of
// them, without runs with legs; loss scales; the load of experts. `id` begins those of the charts.
std::vector<Chart> ComparisonCharts(const ComparedWorkload& workload, const std::string& id);

// One step of a run: what all ranks did when, and below it the memory of the rank that had most,
// over the same time. The title names the leg that has the step, where the run has several. None
// without a trace.
std::vector<Chart> StepCharts(const ComparedRun& compared, const std::string& id);

}  // namespace lockstep
