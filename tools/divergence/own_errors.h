// Each operation of a decoder judged by its own error: recomputed in double precision from the
// inputs that the same run recorded. So a program whose bits are not ours is held to what it should
// compute, and an operation is not blamed for the error of one before it.

#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "absl/status/statusor.h"
#include "core/probe/probed_run.h"
#include "tools/divergence/held_tensors.h"
#include "tools/divergence/own_updates.h"

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

// Judges all forward and backward tensors and the gradients of parameters that the run has recorded
// with values, together with their inputs; and, where `optimizer` is given, norm, optimizer state
// and parameters after each step (JudgeOwnUpdate). The errors of ReadProbedValues.
absl::StatusOr<OwnErrors> JudgeOwnErrors(
    const ProbedRun& run, const DecoderSemantics& model,
    const std::optional<AdamWSemantics>& optimizer = std::nullopt);

}  // namespace lockstep
