#pragma once

#include <vector>

#include "absl/status/status.h"
#include "core/report/rank_report.h"
#include "core/report/run_description.h"

namespace lockstep {

// Writes summary.json and trace.json to the run directory and prints the summary: speed, where the
// time of a step went, and memory and traffic as predicted and as measured.
absl::Status WriteRunSummary(const RunDescription& run, const std::vector<RankReport>& reports);

}  // namespace lockstep
