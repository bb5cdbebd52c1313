#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "tools/experiment/run_record.h"

namespace lockstep {

// Compares the runs: prints the report, writes the page, and says where it is: at the path `html`,
// which is comparison.html in the deepest directory that all runs are in if it is empty.
// `pictures`: the page and each chart as PNG files too, beside it.
absl::Status ShowComparison(const std::vector<RunRecord>& runs, std::string html, bool pictures);

}  // namespace lockstep
