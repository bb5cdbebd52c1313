#pragma once

#include <vector>

#include "absl/strings/string_view.h"
#include "core/kernels/kernel_call.h"

namespace lockstep {

// One tensor of a kernel call, or several that play the same part, added up.
struct NamedTensor {
  absl::string_view name;  // of the parameter in core/kernels/kernels.h
  double bytes = 0, rows = 0, columns = 0, elements = 0;
};

// The tensors of a call by the names of their parameters. Calls of UpdateParameters have gradient,
// parameter, copy and states, each of all tensors together; reductions over many tensors have x.
// `repeats` calls of equal shapes, on so many runs of rows, count as one call on all rows.
std::vector<NamedTensor> TensorsOf(const KernelCall& call, int64_t repeats = 1);

// The names of a kernel's tensors; empty for a kernel that nobody knows. What ends in "ByLeaves" or
// "ByTokenLeaves" has those of the kernel without.
std::vector<absl::string_view> TensorNames(absl::string_view kernel);

// Tensors of each parameter in a call of UpdateParameters: its gradient, itself, its copy, and as
// many states as there can be.
int UpdateStride();

// "Linear" for "LinearByLeaves", and so on.
absl::string_view WithoutLeaves(absl::string_view kernel);

}  // namespace lockstep
