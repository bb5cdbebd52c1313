#pragma once

#include <vector>

#include "tools/compare/comparison.h"
#include "tools/report/report.h"

namespace lockstep {

// The comparison as a report: for each workload a section with tables of results (loss, its
// difference to the reference, validation), of the time of a step, and of what a rank holds and
// sends; the runs that did not end, with the reason, and what differs beyond the strategy; charts.
// Runs of different workloads are not compared: each section says what sets it apart from the
// first. The steps that were traced follow in a section of their own.
Report ComparisonReport(const std::vector<ComparedWorkload>& workloads);

}  // namespace lockstep
