#pragma once

#include <cstdint>

#include "core/comm/mesh.h"
#include "core/report/results.h"
#include "core/run/leg/training_run.h"
#include "core/run/strategy/rank.h"
#include "core/run/strategy/strategy.h"

namespace lockstep {

// What one rank has of a validation.
struct ValidationPart {
  EvaluationSums sums;  // of its batches, or of its share of them
  int64_t targets = 0;  // of all ranks' batches
};

// Runs the whole split, batches dealt out to the data-parallel ranks in turn; the stages of a model
// take part in the same ones. All ranks evaluate equally often, for some communicate as they do:
// where batches run out, one of no samples. Called by all ranks; throws StatusException.
ValidationPart EvaluatePart(const TrainingRun& run, Rank& rank, Strategy& strategy);

// The result on all ranks. Sums are exact, so that it does not depend on how many ranks there are.
// Likewise.
ValidationResult SumOfParts(ValidationPart own, const Mesh& mesh);

// Both.
ValidationResult Validate(const TrainingRun& run, Rank& rank, Strategy& strategy);

}  // namespace lockstep
