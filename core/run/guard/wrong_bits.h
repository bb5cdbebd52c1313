// What the messages of guards share.

#pragma once

#include "core/run/leg/rank_in_leg.h"

namespace lockstep {

// The end of a message that names a rank.
inline constexpr char kWrongBitsAdvice[] =
    ". The run stops before it saves anything: test the memory and the processor of that rank's "
    "machine, and --resume from the newest checkpoint, elsewhere if they fail";

// Whether ranks send each other what a step computes with, or whose sums a rank alone receives:
// activations, weights, shards of gradients. What was wrong on one, or on its way, may then show
// first on another.
bool DependOnEachOther(RankInLeg& here);

}  // namespace lockstep
