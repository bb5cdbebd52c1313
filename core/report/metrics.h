// The files of numbers that a run leaves in its directory: losses.csv, metrics.jsonl, hashes.csv
// and summary.json.

#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "core/report/row_file.h"
#include "nlohmann/json_fwd.hpp"

namespace lockstep {

// losses.csv, the loss of each step: a header `step,loss`, then one row a step.
extern const RowFormat kLossesCsv;

// One row of a loss curve.
struct LossPoint {
  int64_t step = 0;
  double loss = 0;  // may be infinite or NaN

  // The loss with nine significant digits, which tell any two floats apart. Infinite and undefined
  // losses read inf, -inf and nan.
  std::string ToRow() const;

  bool operator==(const LossPoint&) const = default;
};

// Reads a losses.csv, or what was kept from one. Rows with other contents, steps that do not
// ascend, and a last row without line end are errors with file and line.
absl::StatusOr<std::vector<LossPoint>> ReadLossCurve(const std::string& path);

// metrics.jsonl: rows of JSON objects with a member `step`. A step may have several rows.
extern const RowFormat kMetricsJsonl;

// Hands over the rows of a metrics.jsonl that have a member `key` and belong to one of the first
// `steps` steps, oldest first. Other rows, and lines that are none, are passed over. NotFound where
// there is no file.
absl::Status ForEachMetric(const std::string& path, absl::string_view key, int64_t steps,
                           absl::FunctionRef<void(const nlohmann::json&)> visit);

// A whole tensor of a run's state, under its name in checkpoints: a parameter, a running statistic,
// or optimizer state ("optimizer.<kind>.<parameter>").
struct TensorHash {
  std::string tensor;
  uint64_t hash = 0;

  bool operator==(const TensorHash&) const = default;
};

// The tensors after a step, in the order of checkpoints.
struct StepHashes {
  int64_t step = 0;
  std::vector<TensorHash> tensors;

  // A row for each tensor, with the hash in 16 hexadecimal digits.
  std::string ToRows() const;

  bool operator==(const StepHashes&) const = default;
};

// hashes.csv, what the run's tensors were after each step, to the bit, so that two runs on any
// meshes can be compared tensor by tensor: a header `step,hash,tensor`, then the rows of each step.
extern const RowFormat kHashesCsv;

// Reads a hashes.csv. Rows with other contents are errors with file and line.
absl::StatusOr<std::vector<StepHashes>> ReadHashes(const std::string& path);

// Writes summary.json, an indented document. Bytes that are no UTF-8 (a file name may have some)
// become the replacement character. Atomic.
absl::Status WriteSummary(const std::string& path, const nlohmann::ordered_json& summary);

}  // namespace lockstep
