#pragma once

#include <optional>
#include <vector>

#include "absl/status/status.h"
#include "core/report/rank_report.h"
#include "core/report/run_description.h"
#include "core/report/time_prediction.h"

namespace lockstep {

// Writes trace.json, with the ranks of all legs, and then summary.json to the run directory and
// prints the summary: speed, where the time of a step went, and time, memory and traffic as
// predicted and as measured. Without `time`, nothing is said of predicted time.
absl::Status WriteRunSummary(const RunDescription& run, const std::vector<RankReport>& reports,
                             const std::optional<TimePrediction>& time = {});

}  // namespace lockstep
