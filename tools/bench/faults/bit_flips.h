#pragma once

#include "tools/bench/faults/fault_kind.h"

namespace lockstep {

// Bits that flip in runs with guard.every = 1 (tools/bench/flips.h), half of them with each rank
// repeating its own work and half with each repeating another's.
FaultKind BitFlipsKind();

// Wrong bits that stay, in runs with guard.every = N (tools/bench/lasting_flips.h).
FaultKind LastingFlipsKind();

}  // namespace lockstep
