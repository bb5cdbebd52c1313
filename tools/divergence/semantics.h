// What the configuration of a run says that another program should compute.

#pragma once

#include <optional>

#include "absl/status/statusor.h"
#include "core/config/config.h"
#include "tools/divergence/own_errors.h"

namespace lockstep {

// What the model that [model], [data] and [train] describe computes. Unimplemented for models that
// are not recomputed, for adapters, and for dropout, whose masks other programs draw in their own
// way.
absl::StatusOr<ModelSemantics> ReadModelSemantics(const Config& config);

// What the optimizer that the configuration describes does, with the decimal numbers that it says.
// None for another than AdamW and SGD, whose update is not judged.
absl::StatusOr<std::optional<OptimizerSemantics>> ReadOptimizerSemantics(const Config& config);

}  // namespace lockstep
