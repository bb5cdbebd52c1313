// The files of numbers that a run leaves in its directory: losses.csv, metrics.jsonl, summary.json.

#pragma once

#include <concepts>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "core/report/row_file.h"

namespace lockstep {

// The loss of each step: a header `step,loss`, then one row a step, the loss with nine significant
// digits, which tell any two floats apart. Infinite and undefined losses read inf, -inf and nan.
class LossesCsv {
 public:
  // Begins the file anew.
  static absl::StatusOr<LossesCsv> Create(const std::string& path);

  // Goes on with the file of a run that is resumed: rows of step `next_step` and later, which will
  // be computed again, are dropped. A file that is no loss curve is an error and stays as it was.
  static absl::StatusOr<LossesCsv> Resume(const std::string& path, int64_t next_step);

  // Adds a row; it survives a kill of the process. Steps must ascend.
  absl::Status Append(int64_t step, double loss);

 private:
  explicit LossesCsv(RowFile file) : file_(std::move(file)) {}

  RowFile file_;
};

// One row of a loss curve.
struct LossPoint {
  int64_t step = 0;
  double loss = 0;  // may be infinite or NaN

  bool operator==(const LossPoint&) const = default;
};

// Reads a file that LossesCsv wrote, or that was kept from one. Rows with other contents, steps
// that do not ascend, and a last row without line end are errors with file and line.
absl::StatusOr<std::vector<LossPoint>> ReadLossCurve(const std::string& path);

// Named values in the order in which they were set: one line of metrics.jsonl, or summary.json.
//
//   MetricsRow().Set("loss", 1.25).Set("memory", MetricsRow().Set("parameters", bytes))
class MetricsRow {
 public:
  // Sets `name` to a number, a string, a truth value, another row, or a list of any of these; an
  // earlier value of that name is replaced. JSON has neither infinity nor NaN: both become null.
  MetricsRow& Set(const std::string& name, bool value);
  MetricsRow& Set(const std::string& name, double value);
  MetricsRow& Set(const std::string& name, std::string_view value);
  MetricsRow& Set(const std::string& name, const char* value) {
    return Set(name, std::string_view(value));
  }
  MetricsRow& Set(const std::string& name, const std::string& value) {
    return Set(name, std::string_view(value));
  }
  MetricsRow& Set(const std::string& name, const MetricsRow& value);
  template <std::integral T>
  requires(!std::same_as<T, bool>) MetricsRow& Set(const std::string& name, T value) {
    return SetJson(name, std::to_string(value));
  }
  template <typename T>
  MetricsRow& Set(const std::string& name, const std::vector<T>& values) {
    std::string list;
    for (const T& value : values) {
      list += (list.empty() ? "" : ",") + MetricsRow().Set("", value).values_[0].second;
    }
    return SetJson(name, "[" + list + "]");
  }

  // The row as JSON on one line.
  std::string ToJson() const;

 private:
  MetricsRow& SetJson(const std::string& name, std::string json);

  std::vector<std::pair<std::string, std::string>> values_;  // name, and value as JSON
};

// One row of metrics a step, each a line of JSON that begins with `"step":`.
class MetricsJsonl {
 public:
  // As for LossesCsv.
  static absl::StatusOr<MetricsJsonl> Create(const std::string& path);
  static absl::StatusOr<MetricsJsonl> Resume(const std::string& path, int64_t next_step);

  // Adds a row; it survives a kill of the process. A step may have several rows; steps must not
  // descend.
  absl::Status Append(int64_t step, const MetricsRow& row);

 private:
  explicit MetricsJsonl(RowFile file) : file_(std::move(file)) {}

  RowFile file_;
};

// Writes a row as an indented JSON document: summary.json. Atomic.
absl::Status WriteSummary(const std::string& path, const MetricsRow& summary);

}  // namespace lockstep
