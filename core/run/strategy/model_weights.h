#pragma once

#include <string>
#include <unordered_map>
#include <vector>

#include "absl/status/status.h"
#include "core/checkpoint/state_tensor.h"
#include "core/kernels/kernels.h"
#include "core/layout/model_layout.h"
#include "core/nn/model.h"
#include "core/nn/published.h"
#include "core/tensor/allocator.h"

namespace lockstep {

// By name, the values that a rank holds of what a checkpoint keeps.
using NamedTensors = std::unordered_map<std::string, Tensor>;

// Adds the running statistics of the layers that have memory.
void AddStatistics(const Model& model, NamedTensors& values);

// A rank's state for checkpoints: for each placement of its layout the tensor of that name without
// its padding, or an empty tensor where there is none. The tensors have the elements that their
// placements name, in their order.
std::vector<StateTensor> StateOf(const std::vector<TensorPlacement>& placements,
                                 const NamedTensors& values, Allocator& allocator);

// The weights of a model on one rank that holds all of it, as files name them: parameters that own
// their values, and running statistics. Where the model has no memory yet, empty tensors stand for
// them, which serve to check a file.
std::vector<StateTensor> WeightsOf(const Model& model, Allocator& allocator);

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
