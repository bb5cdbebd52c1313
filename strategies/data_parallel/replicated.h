#pragma once

#include <cstdint>

#include "strategies/data_parallel/data_parallel.h"

namespace lockstep {

// Bytes of gradients that are reduced together: see PlanBuckets.
struct BucketLimits {
  int64_t first = int64_t{1} << 20;
  int64_t others = int64_t{25} << 20;
};

// Each rank keeps all parameters and gradients of its stages. Gradients are summed over the rank's
// shards, and then over the ranks in buckets, which are launched while backward goes on (Li et al.,
// "PyTorch Distributed", VLDB 2020).
DataParallelMaker MakeReplicated(const BucketLimits& limits);

}  // namespace lockstep
