// Curves of a workload under reorderings of its sums.

#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "core/config/command_line.h"
#include "core/report/metrics.h"
#include "core/run/strategy/strategy.h"
#include "tools/curve/reorderings.h"

namespace lockstep {

// Which runs are made.
struct ReorderedRunsOptions {
  CommandLine workload = {};  // its files, assignments and data; `out` is a folder for the runs
  int64_t steps = 0;          // of each run
  int64_t runs = 0;           // numbers 0, 1, ... of Reorderings::Draw
  uint64_t seed = 0;          // of that
  // Each run is stopped when so many steps are behind it, and goes on from its checkpoint; 0: none.
  int64_t resumed_at = 0;
  // Called when a run ends, with its number and a line about it.
  std::function<void(int64_t run, const std::string& line)> ended = [](int64_t, const auto&) {};
};

// The workload with a strategy as it is run here: so many steps, without validation, checkpoints
// and traces. Errors are those of CheckRun.
absl::StatusOr<TrainingRun> CheckReorderedRun(const ReorderedRunsOptions& options,
                                              const StrategyDefinition& strategy);

// Trains one run and returns its losses; nothing of it is kept. Cancelled on Ctrl-C, when the step
// that was begun has ended.
absl::StatusOr<std::vector<LossPoint>> TrainReordered(const ReorderedRunsOptions& options,
                                                      const StrategyDefinition& strategy,
                                                      const Reordering& reordering);

// All runs, in the order of their numbers.
absl::StatusOr<std::vector<std::vector<LossPoint>>> TrainAllReordered(
    const ReorderedRunsOptions& options, const StrategyDefinition& strategy);

}  // namespace lockstep
