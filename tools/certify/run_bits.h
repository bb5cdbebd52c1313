// A run to the bit, and where two runs part.

#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "core/report/metrics.h"

namespace lockstep {

// A step of a run: what it reported, and all tensors after it.
struct StepBits {
  int64_t step = 0;
  double loss = 0;
  double gradient_norm = 0;  // NaN where it is not finite, as in JSON
  std::vector<TensorHash> tensors = {};
};

// Reads losses.csv, metrics.jsonl and hashes.csv of a run that had hashes.every = 1. Errors name
// the file, also where its rows are not those that the run wrote (core/report/row_checksums.h).
absl::StatusOr<std::vector<StepBits>> ReadRunBits(const std::string& directory);

// The first step at which two runs differ.
struct BitsDifference {
  int64_t step = 0;  // from 0, as in losses.csv
  // The first that differs in the order in which a step makes them: "loss", "gradient norm", or a
  // tensor; empty where one run has no such step.
  std::string what = {};
  std::string actual = {}, expected = {};  // its values, or hashes
  std::vector<std::string> tensors =
      {};  // all that differ after the step, in the order of checkpoints
  int64_t all_tensors = 0;

  // "step 3: the gradient norm is 0.5, not 0.25; after it 12 of 96 tensors differ, the first is
  // head.weight".
  std::string ToString() const;
};

// None where both runs have the same steps with the same bits. Tensors are matched by name; one
// that a run lacks differs.
std::optional<BitsDifference> FirstDifference(const std::vector<StepBits>& actual,
                                              const std::vector<StepBits>& expected);

// A run in three numbers of 16 hexadecimal digits.
struct BitsDigest {
  std::string losses;     // losses and gradient norms of all steps
  std::string weights;    // after the last step: the run's parameter_hash
  std::string optimizer;  // its state after the last step
};
BitsDigest DigestOf(const std::vector<StepBits>& run);

}  // namespace lockstep
