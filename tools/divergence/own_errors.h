// Each operation of a decoder judged by its own error: recomputed in double precision from the
// inputs that the same run recorded. So a program whose bits are not ours is held to what it should
// compute, and an operation is not blamed for the error of one before it.

#pragma once

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "core/probe/probed_run.h"

namespace lockstep {

// What the operations of a GPT-2 or a Llama compute, as far as the shapes of its tensors do not
// show it.
struct DecoderSemantics {
  enum class Family { kGpt2, kLlama };

  Family family = Family::kGpt2;
  int64_t heads = 1, key_heads = 1;
  int64_t context = 1;  // tokens of a sample
  double norm_epsilon = 1e-5;
  std::vector<double> frequencies = {};  // of rotary positions, one for each plane; Llama only
};

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

// Judges all forward and backward tensors and the gradients of parameters that the run has recorded
// with values, together with their inputs. The errors of ReadProbedValues.
absl::StatusOr<OwnErrors> JudgeOwnErrors(const ProbedRun& run, const DecoderSemantics& model);

}  // namespace lockstep
