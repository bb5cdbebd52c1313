#pragma once

#include <vector>

#include "absl/status/status.h"
#include "core/comm/launch.h"
#include "core/report/rank_report.h"
#include "core/run/leg/training_run.h"

namespace lockstep {

// Trains as one rank of a run, from the first step, or the newest checkpoint, to the last, or until
// run.stop says so, and saves a checkpoint then. Rank 0 writes losses, metrics and checkpoints to
// the run directory and shows progress.
absl::Status TrainRank(const TrainingRun& run, RankHandle& handle, RankReport& report);

// Starts all ranks of a run, and returns the reports of those of its last leg, by rank
// (KeepLastLeg). Where several ranks fail together, post_mortem/ in the run directory keeps their
// ledgers.
absl::StatusOr<std::vector<RankReport>> TrainRanks(const TrainingRun& run);

// The timeout of a run, and where the ledgers of its ranks go when it fails after it has begun. The
// run outlives them.
LaunchOptions LaunchOptionsOf(const TrainingRun& run);

}  // namespace lockstep
