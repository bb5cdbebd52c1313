#include "core/report/step_csv.h"

#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_split.h"
#include "core/base/status.h"

namespace lockstep {
namespace {

absl::StatusOr<int64_t> StepOfRow(const std::string& row) {
  const std::vector<std::string> cells = absl::StrSplit(row, ',');
  int64_t step;
  double rate, norm;
  if (cells.size() == 3 && absl::SimpleAtoi(cells[0], &step) && absl::SimpleAtod(cells[1], &rate) &&
      absl::SimpleAtod(cells[2], &norm)) {
    return step;
  }
  return InvalidArgument(
      "expected a step, its learning rate and its gradient norm, such as \"12,0.003,1.5\", found "
      "\"",
      row, "\"");
}

}  // namespace

const RowFormat kStepsCsv = {.header = "step,learning_rate,gradient_norm",
                             .step_of_row = StepOfRow};

std::string StepRow(int64_t step, const StepResult& result) {
  return absl::StrFormat("%d,%.9g,%.9g", step, result.learning_rate, result.gradient_norm);
}

}  // namespace lockstep
