// Runs of threads that outlive their ranks.

#pragma once

#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "core/config/command_line.h"
#include "core/report/rank_report.h"
#include "core/run/leg/training_run.h"
#include "core/run/strategy/strategy.h"

namespace lockstep {

// What a run was prepared from (PrepareRun), and is prepared from again for another mesh.
struct RunSource {
  const CommandLine& command_line;
  const StrategyDefinition& strategy;
  const ModelFactory& make_model;
  const std::vector<StrategyDefinition>& strategies;  // that --elastic_prefer may name
};

// A run that has ended well.
struct EndedRun {
  std::shared_ptr<const TrainingRun> run;  // as it ended: on the mesh that it came to
  std::vector<RankReport> reports;         // by rank, of the last attempt
};

// Trains with ranks as threads, as TrainRanks does. Where a rank is lost, which is any failure that
// may go well the next time (ExitCodeOfFailure), the others go on with the newest sound checkpoint,
// or from the first step where there is none: on the first formation of --elastic_prefer that they
// are enough for, or else on the largest mesh that divides the cut. A run with legs keeps its
// meshes, and a thread is started in the place of the lost one. Each loss is a row of
// restarts.jsonl (core/report/restart_log.h), and told to the standard error stream.
//
// Returns the error where no rank is left, where it is one that somebody has to mend, and after
// four losses in a row without a new checkpoint in between.
absl::StatusOr<EndedRun> TrainElastic(TrainingRun run, const RunSource& source);

}  // namespace lockstep
