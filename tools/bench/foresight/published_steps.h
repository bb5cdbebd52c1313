#pragma once

#include <vector>

#include "absl/status/statusor.h"
#include "tools/report/report.h"

namespace lockstep {

// Errors of foresight on steps that others have measured, beside the goals: vTrain's rows, fitted
// on one half and judged on the other, both ways; and papers' rows, by what is fitted to vTrain's.
// Behind the table of errors follow the regrets of vTrain's rows by group, a table for each half of
// each file.
absl::StatusOr<std::vector<Table>> PublishedErrors();

// Predicted memory of Korthikanti et al.'s four models beside the published memory.
absl::StatusOr<Table> PublishedMemoryErrors();

// Times and memory of LLM-Training-Puzzles' reference solutions beside what the puzzles count.
absl::StatusOr<Table> Puzzles();

}  // namespace lockstep
