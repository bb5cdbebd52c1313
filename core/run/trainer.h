#pragma once

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "core/comm/launch.h"
#include "core/report/rank_report.h"
#include "core/run/training_run.h"

namespace lockstep {

// Trains as one rank of a run, from the first step, or the newest checkpoint, to the last. Rank 0
// writes losses, metrics and checkpoints to the run directory and shows progress.
absl::Status TrainRank(const TrainingRun& run, RankHandle& handle, RankReport& report);

// Starts all ranks of a run; their reports, by rank.
absl::StatusOr<std::vector<RankReport>> TrainRanks(const TrainingRun& run);

// TrainRanks, and then summary.json, trace.json, and the summary on the standard output. Where
// several ranks fail together, post_mortem/ in the run directory keeps their ledgers.
absl::Status Train(const TrainingRun& run);

// Where RunRanks and its like leave the ledgers of a run that has failed.
std::string PostMortemFolder(const TrainingRun& run);

}  // namespace lockstep
