#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "tools/report/report.h"

namespace lockstep {

struct RunRounds {
  std::string strategies;  // folder with the presets' programs
  int steps = 24;          // of each run
  int count = 3;
};

// Runs of models that were not calibrated, under every preset, as threads and as processes, each
// beside the prediction in its own summary; at the end all errors together, beside the goals.
//
// A run's time is the median of its steps; of several rounds the fastest counts, because a
// machine's neighbours slow down now the one and now the other. The regret of a group of runs of
// one model, as threads or as processes: what the preset that should be fastest takes over what the
// fastest takes.
absl::StatusOr<Table> MachineRuns(const RunRounds& rounds);

}  // namespace lockstep
