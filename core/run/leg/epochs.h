#pragma once

#include <cstdint>

#include "absl/status/statusor.h"
#include "core/config/config.h"

namespace lockstep {

// Whether a configuration says how long a run is in epochs: train.epochs, which 0 leaves to
// train.steps.
bool CountsEpochs(const Config& config);

// The configuration with train.steps in place of train.epochs, for a training split of `samples`:
// as many steps of batch.size as draw each sample so often, the last of them rounded up.
// InvalidArgument where train.steps is given too, and for numbers that are none.
absl::StatusOr<Config> WithStepsOfEpochs(const Config& config, int64_t samples);

}  // namespace lockstep
