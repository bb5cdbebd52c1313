// Comparison of a run of Lockstep with a run of another program (torch_probe.py), whose bits are
// its own: the same weights and batches to the bit, and then each operation by its own error.

#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "core/config/config.h"
#include "core/probe/probed_run.h"

namespace lockstep {

// Whether another program than Lockstep has written the probes.
bool IsForeign(const ProbedRun& run);

// A run of another program beside one of ours.
struct ForeignComparison {
  bool agrees = true;
  std::string text;  // lines for a person
};

// `ours` is a run of Lockstep, whose configuration is `config`; `theirs` is another program's, with
// values. InvalidArgument where they are not of one workload; the errors of JudgeOwnErrors.
absl::StatusOr<ForeignComparison> CompareForeign(const ProbedRun& ours, const Config& config,
                                                 const ProbedRun& theirs);

}  // namespace lockstep
