#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "core/comm/comm_totals.h"
#include "core/comm/launch.h"
#include "core/tensor/memory.h"
#include "core/train/run.h"
#include "core/train/step_timer.h"
#include "core/train/strategy.h"
#include "core/train/trace.h"

namespace lockstep {

// Mean over the validation split.
struct ValidationResult {
  double loss = 0;
  double accuracy = 0;  // of classification, and of the next token
};

// What a rank reports when training is over.
struct RankReport {
  std::unique_ptr<Trace> trace;
  StepTimes times;             // added up over `measured_steps`
  int64_t measured_steps = 0;  // without the first ones, which warm up
  double median_step_seconds = 0;
  int64_t kernel_nanos = 0;  // of `times`: inside kernels
  MemoryBooks memory;        // peaks over the steps
  CommTotals traffic;        // of all steps
  int64_t steps = 0;         // run here
  CostPrediction prediction;
  std::vector<double> losses;  // of the steps run here; the same on all ranks
  ValidationResult validation;
  // Of the bits of the parameters and buffers that this rank holds at the end.
  std::string parameter_hash;
};

// Trains as one rank of a run, from the first step, or the newest checkpoint, to the last. Rank 0
// writes losses, metrics and checkpoints to the run directory and shows progress.
absl::Status TrainRank(const Run& run, RankHandle& handle, RankReport& report);

// Starts all ranks of a run; their reports, by rank.
absl::StatusOr<std::vector<RankReport>> TrainRanks(const Run& run);

// TrainRanks, and then summary.json, trace.json, and the summary on the standard output.
absl::Status Train(const Run& run);

}  // namespace lockstep
