// hashes.csv of a run directory: what the run's tensors were after each step, to the bit, so that two
// runs on any meshes can be compared tensor by tensor.

#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "core/report/row_file.h"

namespace lockstep {

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

  bool operator==(const StepHashes&) const = default;
};

// A header `step,hash,tensor`, then a row for each tensor of each step; the hash in 16 hexadecimal
// digits.
class HashesCsv {
 public:
  // As for LossesCsv.
  static absl::StatusOr<HashesCsv> Create(const std::string& path);
  static absl::StatusOr<HashesCsv> Resume(const std::string& path, int64_t next_step);

  // Adds the rows of a step, all of them at once. Steps must ascend.
  absl::Status Append(const StepHashes& hashes);

 private:
  explicit HashesCsv(RowFile file) : file_(std::move(file)) {}

  RowFile file_;
};

// Reads a file that HashesCsv wrote. Rows with other contents are errors with file and line.
absl::StatusOr<std::vector<StepHashes>> ReadHashes(const std::string& path);

}  // namespace lockstep
