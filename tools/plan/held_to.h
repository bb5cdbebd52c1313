#pragma once

#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "foresight/cluster.h"
#include "foresight/dialect.h"
#include "foresight/step_time.h"
#include "tools/plan/measured_rows.h"

namespace lockstep {

// Rows and what was recorded of their runs.
struct RecordedRows {
  std::vector<MeasuredRow> rows;
  std::vector<StepTime> steps;  // by row
};

// Records the run of each row under the dialect, in about 70 ms each. The errors of RecordRun and
// StepTime::Create, with the row's name.
absl::StatusOr<RecordedRows> RecordRows(std::vector<MeasuredRow> rows, const Dialect& dialect,
                                        const Cluster& cluster);

// The step's seconds of each row.
absl::StatusOr<std::vector<double>> Predict(const RecordedRows& recorded, const Dialect& dialect,
                                            const Cluster& cluster);

// Errors |predicted / measured - 1| over rows, and the regret over groups of rows that differ in
// mesh alone: the measured time of the row with the least predicted one, over the least measured
// one, less 1. Fractions.
struct Judgement {
  size_t rows = 0, groups = 0;
  double mean = 0, median = 0, largest = 0;
  double regret = 0, largest_regret = 0;  // mean and largest over groups

  std::string ToString() const;
};
Judgement Judge(const std::vector<MeasuredRow>& rows, const std::vector<double>& predicted);

}  // namespace lockstep
