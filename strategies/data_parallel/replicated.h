#pragma once

#include "strategies/data_parallel/data_parallel.h"
#include "strategies/data_parallel/gradient_reducer.h"

namespace lockstep {

// Each rank keeps all parameters and gradients of its stages. Gradients are summed in buckets,
// which are launched while backward goes on (Li et al., "PyTorch Distributed", VLDB 2020).
DataParallelMaker MakeReplicated(const BucketLimits& buckets);

}  // namespace lockstep
