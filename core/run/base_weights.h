#pragma once

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "core/checkpoint/state_tensor.h"
#include "core/kernels/kernels.h"
#include "core/nn/published.h"

namespace lockstep {

// The state of a run that trains adapters is the frozen base, which comes from a file or from the
// seed, and all else, which checkpoints keep. Without adapters nothing is frozen.
std::vector<StateTensor> FrozenState(const std::vector<StateTensor>& state);
std::vector<StateTensor> TrainedState(const std::vector<StateTensor>& state);

// What a file to start from fills: the base of adapters, or everything.
std::vector<StateTensor> InitialState(const std::vector<StateTensor>& state);

// Fills the initial state as LoadWeights does. What is frozen may be of 16 bits, and is rounded:
// its values are there in fp32 meanwhile.
absl::Status LoadInitialWeights(const std::string& path, const PublishedNames& names,
                                const std::vector<StateTensor>& state, Kernels& kernels);

}  // namespace lockstep
