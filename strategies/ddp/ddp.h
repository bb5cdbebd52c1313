#pragma once

#include "core/run/strategy.h"

namespace lockstep {

// Distributed data parallel (Li et al., "PyTorch Distributed", VLDB 2020): every rank holds the
// whole model and takes one shard of the batch. Gradients are summed over the ranks in buckets,
// each launched while backward goes on as soon as it is complete, always in the same order; earlier
// micro-batches of a step only accumulate. Batch statistics and the loss are summed once a step, so
// that all replicas stay the same to the bit.
//
// With tp ranks, each rank is one of tp ranks that compute layers together, as in `tp`.
//
// Options, table [ddp] (and [tp], see there): first_bucket_bytes (1 MiB), bucket_bytes (25 MiB).
StrategyDefinition DdpStrategy();

}  // namespace lockstep
