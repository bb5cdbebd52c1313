#pragma once

#include "core/report/results.h"
#include "core/run/leg/training_run.h"
#include "core/run/strategy/rank.h"
#include "core/run/strategy/strategy.h"

namespace lockstep {

// Runs the whole split, batches dealt out to the data-parallel ranks in turn; the stages of a model
// take part in the same ones. The sums of all batches meet in one tensor and are added in order, so
// that the result does not depend on how many ranks there are; the last stages have them, and tell
// the others. All ranks evaluate equally often, for some communicate as they do: where batches run
// out, one of no samples. Called by all ranks; throws StatusException.
ValidationResult Validate(const TrainingRun& run, Rank& rank, Strategy& strategy);

}  // namespace lockstep
