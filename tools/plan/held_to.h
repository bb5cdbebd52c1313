#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "foresight/cluster.h"
#include "foresight/dialect.h"
#include "foresight/step_time.h"
#include "tools/plan/measured_rows.h"
#include "tools/report/report.h"

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

// Rows that differ in mesh alone (MeasuredRow::Group).
struct JudgedGroup {
  std::string name;  // MeasuredRow::GroupName
  size_t rows = 0;
  // The meshes of the rows with the least predicted and with the least measured time
  // (MeasuredRow::MeshName). The first such row, where several rows have equal times.
  std::string preferred, best;
  // Measured time of the preferred mesh over the measured time of the best one, less 1.
  double regret = 0;
};

// Errors |predicted / measured - 1| over rows, and the regret of each group. Fractions.
struct Judgement {
  size_t rows = 0;
  double mean = 0, median = 0, largest = 0;
  std::vector<JudgedGroup> groups = {};   // by GPUs, batch, layers, width, heads, sequence
  double regret = 0, largest_regret = 0;  // mean and largest over groups

  std::string ToString() const;  // one line
};
Judgement Judge(const std::vector<MeasuredRow>& rows, const std::vector<double>& predicted);

// The groups, a line each, but those of one row: without a choice of meshes there is no regret. The
// title says how many groups have one row.
Table RegretByGroup(const Judgement& judgement);

}  // namespace lockstep
