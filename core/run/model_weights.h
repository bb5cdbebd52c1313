#pragma once

#include <vector>

#include "core/checkpoint/state_tensor.h"
#include "core/nn/model.h"
#include "core/tensor/allocator.h"

namespace lockstep {

// The weights of a model on one rank that holds all of it, as files name them: parameters that own
// their values, and running statistics. Where the model has no memory yet, empty tensors stand for
// them, which serve to check a file.
std::vector<StateTensor> WeightsOf(const Model& model, Allocator& allocator);

// Of these the running statistics; those of other ranks are empty tensors too.
std::vector<StateTensor> StatisticsOf(const Model& model, Allocator& allocator);

}  // namespace lockstep
