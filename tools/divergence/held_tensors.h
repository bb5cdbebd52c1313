// Recorded tensors held to what they should be, in units of the rounding that explains an error.

#pragma once

#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "core/kernels/reference.h"
#include "core/probe/probed_run.h"

namespace lockstep {

// A recorded tensor whose own error is larger than rounding explains.
struct OwnError {
  const ProbedWhole* tensor = nullptr;
  int64_t element = 0;  // row-major, the one that is furthest off
  double recorded = 0, expected = 0;
  // The error in units of the rounding of its type times the sum of the magnitudes of the terms
  // that the element is added up from.
  double units = 0;
};

struct OwnErrors {
  int64_t judged = 0;            // tensors that were recomputed
  double most_units = 0;         // of those that are not listed
  std::vector<OwnError> errors;  // in the order of computation
};

// Errors of fewer units are rounding (docs/debugging.md has what was measured).
inline constexpr double kOwnErrorUnits = 16;

// The elements of a tensor as doubles. The errors of ReadProbedValues.
absl::StatusOr<reference::Array> ReadArray(const ProbedRun& run, const ProbedWhole& tensor);

// Holds a tensor of the run to what it should be, which is in terms of double precision, and adds
// what is found to `errors`. `epsilon`: the rounding of what computed it; 0: that of the tensor's
// type. InvalidArgument where the shapes are not those of one model.
absl::Status HoldTensor(const ProbedRun& run, const ProbedWhole& tensor,
                        const reference::Result& expected, OwnErrors& errors, double epsilon = 0);

}  // namespace lockstep
