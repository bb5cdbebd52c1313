#pragma once

#include <vector>

#include "tools/compare/comparison.h"
#include "tools/report/report.h"

namespace lockstep {

// The comparison as a report: for each workload a section with tables of results (loss, its
// difference to the reference, validation), of the time of a step, and of what a rank holds and
// sends; the runs that did not end, with the reason, and what differs beyond the strategy; charts.
// Runs of different workloads are not compared: the report begins with what these differ in.
Report ComparisonReport(const std::vector<ComparedWorkload>& workloads);

}  // namespace lockstep
