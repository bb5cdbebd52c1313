#pragma once

#include <string>
#include <vector>

#include "tools/compare/comparison.h"

namespace lockstep {

// The comparison for a terminal: for each workload a table of results (loss, its difference to the
// reference, validation), one of the time of a step, and one of what a rank holds and sends, a row
// a run in each; then the runs that did not end, with the reason, and what differs beyond the
// strategy.
std::string TextReport(const std::vector<ComparedWorkload>& workloads);

}  // namespace lockstep
