// The loss curves of a comparison for TensorBoard.

#pragma once

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "tools/compare/comparison.h"

namespace lockstep {

// Writes an event file for each run that has losses, FOLDER/WORKLOAD/LABEL/events.out.tfevents...,
// with the scalar "loss" of each step; "/" within a name becomes "_". TensorBoard shows one chart,
// with a curve for each run. Event files that an earlier comparison left there are removed.
absl::Status WriteLossEvents(const std::vector<ComparedWorkload>& workloads,
                             const std::string& folder);

}  // namespace lockstep
