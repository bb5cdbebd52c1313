#pragma once

#include "absl/status/statusor.h"
#include "tools/report/report.h"

namespace lockstep {

// Errors of foresight on steps that others have measured, beside the goals: vTrain's rows, fitted
// on one half and judged on the other, both ways; and papers' rows, by what is fitted to vTrain's.
absl::StatusOr<Table> PublishedErrors();

// Times and memory of LLM-Training-Puzzles' reference solutions beside what the puzzles count.
absl::StatusOr<Table> Puzzles();

}  // namespace lockstep
