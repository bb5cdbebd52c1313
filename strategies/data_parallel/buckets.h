#pragma once

#include <cstdint>
#include <vector>

#include "core/kernels/kernels.h"
#include "core/nn/parameter.h"

namespace lockstep {

// Which parameters' gradients are reduced together: indices into a list of parameters, by bucket.
using Buckets = std::vector<std::vector<size_t>>;

// Fills buckets in the reverse order of `parameters` (which are in order of first use, so that
// backward completes the first bucket first). A bucket is closed when the next parameter would take
// it over its limit; a parameter above the limit has one of its own. The first bucket has a limit
// of its own: a small one starts the communication early (Li et al., "PyTorch Distributed", VLDB
// 2020).
Buckets PlanBuckets(const std::vector<int64_t>& parameter_bytes, int64_t first_limit,
                    int64_t limit);

// The memory of the buckets: one flat tensor of `dtype` each, of which the parameters' gradients
// become views that begin on 64-byte boundaries. Gaps, which only tensors of odd sizes leave, are
// zero.
std::vector<Tensor> MakeBuckets(const Buckets& buckets, const std::vector<Parameter*>& parameters,
                                DType dtype, Kernels& kernels);

}  // namespace lockstep
