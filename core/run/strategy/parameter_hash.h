#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "core/checkpoint/checkpoint.h"
#include "core/comm/communicator.h"
#include "core/kernels/kernels.h"
#include "core/report/metrics.h"

namespace lockstep {

// The hashes of all whole tensors of a run's state, by the order of `state`: each a sum over the
// tensor's elements of hashes of name, place and bits, the same however the elements are dealt out
// to ranks. Called by all ranks, with the same names in the same order. Costs some 2 ns an element,
// and one all-reduce of 8 bytes a tensor.
absl::StatusOr<std::vector<TensorHash>> HashTensors(Kernels& kernels, Communicator& ranks,
                                                    const std::vector<StateTensor>& state);

// A sum over all elements of all parameters and buffers, of hashes of name, place and bits: the
// same however the elements are dealt out to ranks. Two runs with the same hash ended alike. Called
// by all ranks.
absl::StatusOr<std::string> HashParameters(Kernels& kernels, Communicator& ranks,
                                           const std::vector<StateTensor>& state);

// HashParameters of a state that one rank has all of.
std::string HashParameters(Kernels& kernels, const std::vector<StateTensor>& state);

}  // namespace lockstep
