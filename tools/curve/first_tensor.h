// Where a strategy parts from the run that it is held to, tensor by tensor.

#pragma once

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "tools/curve/strategy_check.h"
#include "tools/report/report.h"

namespace lockstep {

// Two programs that should have the same bits.
struct ProgramPair {
  std::string a, b;  // what is expected, and what is checked
  // The last step that is needed to see a difference, from 0 on.
  int64_t last_step = 0;
};

// Runs both programs again, as CheckStrategy does, with the hashes of all tensors of the steps up
// to `last_step`, and then with the values of the place where they part. What is said is the report
// of
// //tools/divergence. The probes of both are left in the folders a and b of `folder`, and those
// with values in a.values and b.values. Errors are those of RunForCheck and of reading probes.
absl::StatusOr<Report> FindFirstTensor(const StrategyCheckOptions& options,
                                       const ProgramPair& programs, const std::string& folder);

// Runs a program again with the hashes of all tensors of the steps up to `last_step`, and leaves
// the probes in `folder`.
absl::Status LeaveProbes(const StrategyCheckOptions& options, const std::string& program,
                         int64_t last_step, const std::string& folder);

}  // namespace lockstep
