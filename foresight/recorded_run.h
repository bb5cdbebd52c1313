#pragma once

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "core/config/command_line.h"
#include "core/config/settings.h"
#include "core/run/leg/training_run.h"
#include "core/run/record/recorded_step.h"
#include "core/run/rehearsal.h"
#include "core/run/strategy/strategy.h"
#include "strategies/schedules/schedule.h"

namespace lockstep {

// What the ranks of a run do in a step, recorded while the engine itself runs it over shapes. Work
// that repeats is recorded once:
// - One rank represents all ranks at its place along pp.
// - Of the micro-batches of a shard only a few are recorded: an excerpt of the run's schedule
//   (strategies/schedules/excerpt.h), which itself says in which order all of them run.
struct RecordedRun {
  Settings settings;
  Schedule schedule;                // of all micro-batches
  int64_t rounds = 1;               // how often a step runs the schedule
  int64_t recorded_of_shard = 1;    // number of micro-batches of a shard that are recorded
  std::vector<RecordedStep> steps;  // by rank along pp

  // The whole step of the rank `pp` along pp: indices into steps[pp].stretches, in order.
  std::vector<int32_t> Stretches(int pp) const;
};

// Records a run. Where the strategy is no engine preset, all micro-batches are recorded. Returns
// the errors of RecordStep.
absl::StatusOr<RecordedRun> RecordRun(const TrainingRun& run, const RehearsalOptions& options = {});
// Records the run that a command line describes. Returns the errors of CheckRun, too.
absl::StatusOr<RecordedRun> RecordRun(const CommandLine& command_line,
                                      const StrategyDefinition& strategy,
                                      const ModelFactory& make_model);

// Peaks of a rank's memory in a step and the validation after it.
PeakBytes MemoryOf(const RecordedStep& step, const std::vector<int32_t>& stretches);

}  // namespace lockstep
