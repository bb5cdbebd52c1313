#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "tools/experiment/run_record.h"

namespace lockstep {

struct ShowOptions {
  std::string html;       // the page's path
  bool pictures = false;  // the page and each chart as PNG files too, beside it
};

// The deepest directory that all runs are in, which is where their report goes by default.
std::string CommonDirectory(const std::vector<RunRecord>& runs);

// Compares the runs: prints the report, writes the page, and says where it is.
absl::Status ShowComparison(const std::vector<RunRecord>& runs, const ShowOptions& options);

}  // namespace lockstep
