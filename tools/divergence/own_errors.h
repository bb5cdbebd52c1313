// Each operation of a model judged by its own error: recomputed in double precision from the inputs
// that the same run recorded. So a program whose bits are not ours is held to what it should
// compute, and an operation is not blamed for the error of one before it.

#pragma once

#include <optional>
#include <variant>

#include "absl/status/statusor.h"
#include "core/probe/probed_run.h"
#include "tools/divergence/decoder_errors.h"
#include "tools/divergence/held_tensors.h"
#include "tools/divergence/own_updates.h"
#include "tools/divergence/resnet_errors.h"

namespace lockstep {

using ModelSemantics = std::variant<DecoderSemantics, ResNetSemantics>;

// Judges all forward and backward tensors, the gradients of parameters and the running statistics
// that the run has recorded with values, together with their inputs; and, where `optimizer` is
// given, norm, optimizer state and parameters after each step (JudgeOwnUpdate). The errors of
// ReadProbedValues.
absl::StatusOr<OwnErrors> JudgeOwnErrors(
    const ProbedRun& run, const ModelSemantics& model,
    const std::optional<OptimizerSemantics>& optimizer = std::nullopt);

}  // namespace lockstep
