#include "core/report/metrics.h"

#include <cmath>  // std::isfinite
#include <cstddef>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "core/base/file.h"
#include "core/base/status.h"
#include "nlohmann/json.hpp"

namespace lockstep {
namespace {

constexpr char kLossHeader[] = "step,loss";

absl::StatusOr<LossPoint> ParseLossRow(const std::string& row) {
  const size_t comma = row.find(',');
  LossPoint point;
  const bool good = comma != std::string::npos &&
                    absl::SimpleAtoi(row.substr(0, comma), &point.step) &&
                    absl::SimpleAtod(row.substr(comma + 1), &point.loss);
  if (good) return point;
  return absl::InvalidArgumentError(
      absl::StrCat("expected a step and its loss, such as \"12,3.25\", found \"", row, "\""));
}

absl::StatusOr<int64_t> StepOfLossRow(const std::string& row) {
  LS_ASSIGN_OR_RETURN(const LossPoint point, ParseLossRow(row));
  return point.step;
}

absl::StatusOr<int64_t> StepOfMetricsRow(const std::string& row) {
  const auto json = nlohmann::json::parse(row, nullptr, /*allow_exceptions=*/false);
  if (json.is_object()) {
    const auto step = json.find("step");
    if (step != json.end() && step->is_number_integer()) return step->get<int64_t>();
  }
  return absl::InvalidArgumentError(
      absl::StrCat("expected a JSON object with a whole number \"step\", found \"", row, "\""));
}

// Bytes that are no UTF-8 (a file name may have some) become the replacement character.
std::string JsonString(std::string_view text) {
  return nlohmann::json(text).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

}  // namespace

absl::StatusOr<LossesCsv> LossesCsv::Create(const std::string& path) {
  LS_ASSIGN_OR_RETURN(RowFile file, RowFile::Create(path, kLossHeader));
  return LossesCsv(std::move(file));
}

absl::StatusOr<LossesCsv> LossesCsv::Resume(const std::string& path, int64_t next_step) {
  LS_ASSIGN_OR_RETURN(RowFile file, RowFile::Resume(path, kLossHeader, next_step, StepOfLossRow));
  return LossesCsv(std::move(file));
}

absl::Status LossesCsv::Append(int64_t step, double loss) {
  return file_.Append(absl::StrFormat("%d,%.9g", step, loss));
}

absl::StatusOr<std::vector<LossPoint>> ReadLossCurve(const std::string& path) {
  LS_ASSIGN_OR_RETURN(const std::string contents, ReadFile(path));
  std::vector<LossPoint> curve;
  size_t begin = 0;
  for (int64_t line = 1; begin < contents.size() || line == 1; ++line) {
    const std::string where = absl::StrCat(path, ":", line);
    const size_t end = contents.find('\n', begin);
    const std::string row = contents.substr(begin, end - begin);
    if (line == 1 && row != kLossHeader) {
      return absl::InvalidArgumentError(
          absl::StrCat(where, ": expected the line \"", kLossHeader, "\", found \"", row, "\""));
    }
    if (end == std::string::npos) {
      return absl::InvalidArgumentError(absl::StrCat(
          where, ": the last row has no line end: the file was cut, perhaps within a number"));
    }
    begin = end + 1;
    if (line == 1) continue;
    const absl::StatusOr<LossPoint> point = ParseLossRow(row);
    if (!point.ok()) return Annotate(point.status(), where);
    if (!curve.empty() && point->step <= curve.back().step) {
      return absl::InvalidArgumentError(
          absl::StrCat(where, ": step ", point->step, " comes after step ", curve.back().step));
    }
    curve.push_back(*point);
  }
  return curve;
}

MetricsRow& MetricsRow::Set(const std::string& name, bool value) {
  return SetJson(name, value ? "true" : "false");
}

MetricsRow& MetricsRow::Set(const std::string& name, double value) {
  // The shortest form that reads back to the same bits.
  return SetJson(name, nlohmann::json(value).dump());
}

MetricsRow& MetricsRow::Set(const std::string& name, std::string_view value) {
  return SetJson(name, JsonString(value));
}

MetricsRow& MetricsRow::Set(const std::string& name, const MetricsRow& value) {
  return SetJson(name, value.ToJson());
}

MetricsRow& MetricsRow::SetJson(const std::string& name, std::string json) {
  for (auto& value : values_) {
    if (value.first != name) continue;
    value.second = std::move(json);
    return *this;
  }
  values_.emplace_back(name, std::move(json));
  return *this;
}

std::string MetricsRow::ToJson() const {
  std::string json = "{";
  for (const auto& [name, value] : values_) {
    absl::StrAppend(&json, json.size() > 1 ? "," : "", JsonString(name), ":", value);
  }
  return json + "}";
}

absl::StatusOr<MetricsJsonl> MetricsJsonl::Create(const std::string& path) {
  LS_ASSIGN_OR_RETURN(RowFile file, RowFile::Create(path, /*header=*/""));
  return MetricsJsonl(std::move(file));
}

absl::StatusOr<MetricsJsonl> MetricsJsonl::Resume(const std::string& path, int64_t next_step) {
  LS_ASSIGN_OR_RETURN(RowFile file,
                      RowFile::Resume(path, /*header=*/"", next_step, StepOfMetricsRow));
  return MetricsJsonl(std::move(file));
}

absl::Status MetricsJsonl::Append(int64_t step, const MetricsRow& row) {
  const std::string values = row.ToJson().substr(1);  // without the brace
  return file_.Append(absl::StrCat("{\"step\":", step, values == "}" ? "" : ",", values));
}

absl::Status WriteSummary(const std::string& path, const MetricsRow& summary) {
  const auto document = nlohmann::ordered_json::parse(summary.ToJson());
  return WriteFileAtomically(path, document.dump(2) + "\n");
}

}  // namespace lockstep
