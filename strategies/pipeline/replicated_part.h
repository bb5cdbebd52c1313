#pragma once

#include "strategies/ddp/gradient_reducer.h"
#include "strategies/pipeline/part.h"

namespace lockstep {

// Each shard has its stages in full, and gradients are summed in buckets, as `ddp` does.
PartMaker MakeReplicatedPart(const BucketLimits& buckets);

}  // namespace lockstep
