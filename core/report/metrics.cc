#include "core/report/metrics.h"

#include <cstddef>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "core/base/file.h"
#include "core/base/json.h"
#include "core/base/status.h"
#include "nlohmann/json.hpp"

namespace lockstep {
namespace {

absl::StatusOr<LossPoint> ParseLossRow(const std::string& row) {
  const size_t comma = row.find(',');
  LossPoint point;
  const bool good = comma != std::string::npos &&
                    absl::SimpleAtoi(row.substr(0, comma), &point.step) &&
                    absl::SimpleAtod(row.substr(comma + 1), &point.loss);
  if (good) return point;
  return InvalidArgument("expected a step and its loss, such as \"12,3.25\", found \"", row, "\"");
}

absl::StatusOr<int64_t> StepOfLossRow(const std::string& row) {
  LS_ASSIGN_OR_RETURN(const LossPoint point, ParseLossRow(row));
  return point.step;
}

absl::StatusOr<int64_t> StepOfMetricsRow(const std::string& row) {
  const auto json = ParseJson(row);
  if (json.is_object()) {
    const auto step = json.find("step");
    if (step != json.end() && step->is_number_integer()) return step->get<int64_t>();
  }
  return InvalidArgument("expected a JSON object with a whole number \"step\", found \"", row,
                         "\"");
}

struct HashRow {
  int64_t step = 0;
  TensorHash value;
};

absl::StatusOr<HashRow> ParseHashRow(const std::string& text) {
  const std::vector<std::string> cells = absl::StrSplit(text, absl::MaxSplits(',', 2));
  HashRow row;
  if (cells.size() < 3 || !absl::SimpleAtoi(cells[0], &row.step) ||
      !absl::SimpleHexAtoi(cells[1], &row.value.hash)) {
    return InvalidArgument(
        "expected step, hash and tensor, such as \"12,00ff00ff00ff00ff,head.weight\", "
        "found \"",
        text, "\"");
  }
  row.value.tensor = cells[2];
  return row;
}

absl::StatusOr<int64_t> StepOfHashRow(const std::string& text) {
  LS_ASSIGN_OR_RETURN(const HashRow row, ParseHashRow(text));
  return row.step;
}

}  // namespace

const RowFormat kLossesCsv = {.header = "step,loss", .step_of_row = StepOfLossRow};
const RowFormat kMetricsJsonl = {.header = "", .step_of_row = StepOfMetricsRow};
const RowFormat kHashesCsv = {.header = "step,hash,tensor", .step_of_row = StepOfHashRow};

std::string LossPoint::ToRow() const { return absl::StrFormat("%d,%.9g", step, loss); }

absl::StatusOr<std::vector<LossPoint>> ReadLossCurve(const std::string& path) {
  std::vector<LossPoint> curve;
  LS_RETURN_IF_ERROR(ReadRows(path, kLossesCsv, [&curve](const std::string& row) -> absl::Status {
    LS_ASSIGN_OR_RETURN(const LossPoint point, ParseLossRow(row));
    if (!curve.empty() && point.step <= curve.back().step) {
      return InvalidArgument("step ", point.step, " comes after step ", curve.back().step);
    }
    curve.push_back(point);
    return absl::OkStatus();
  }));
  return curve;
}

std::string StepHashes::ToRows() const {
  return absl::StrJoin(tensors, "\n", [this](std::string* rows, const TensorHash& value) {
    absl::StrAppendFormat(rows, "%d,%016x,%s", step, value.hash, value.tensor);
  });
}

absl::Status ForEachMetric(const std::string& path, absl::string_view key, int64_t steps,
                           absl::FunctionRef<void(const nlohmann::json&)> visit) {
  LS_ASSIGN_OR_RETURN(const std::string text, ReadFile(path));
  const std::string mark = absl::StrCat("\"", key, "\"");
  for (const absl::string_view line : absl::StrSplit(text, '\n')) {
    if (!absl::StrContains(line, mark)) continue;  // parsing takes longer
    const auto row = ParseJson({line.data(), line.size()});
    if (!row.is_object() || !row.contains(key)) continue;
    const auto step = row.find("step");
    if (step == row.end() || !step->is_number_integer() || step->get<int64_t>() >= steps) continue;
    visit(row);
  }
  return absl::OkStatus();
}

absl::StatusOr<std::vector<StepHashes>> ReadHashes(const std::string& path) {
  std::vector<StepHashes> steps;
  LS_RETURN_IF_ERROR(ReadRows(path, kHashesCsv, [&steps](const std::string& text) -> absl::Status {
    LS_ASSIGN_OR_RETURN(HashRow row, ParseHashRow(text));
    if (steps.empty() || steps.back().step != row.step) {
      steps.push_back({.step = row.step, .tensors = {}});
    }
    steps.back().tensors.push_back(std::move(row.value));
    return absl::OkStatus();
  }));
  return steps;
}

absl::Status WriteSummary(const std::string& path, const nlohmann::ordered_json& summary) {
  using ErrorHandler = nlohmann::ordered_json::error_handler_t;
  return WriteFileAtomically(
      path, summary.dump(2, ' ', /*ensure_ascii=*/false, ErrorHandler::replace) + "\n");
}

}  // namespace lockstep
