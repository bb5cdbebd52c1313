#pragma once

#include "tools/bench/faults/fault_kind.h"

namespace lockstep {

// Ranks that are threads of an --elastic run are lost, by an exception, at random moments: between
// steps, amid a step while others are in a collective, when a checkpoint has been handed to its
// writer, and at a change of mesh.
FaultKind ThreadLossesKind();

// Every run must go on by itself, with the ranks that are left or, where it has legs, with new
// threads, and end with the undisturbed run's losses.csv and hash, without a file left behind.
absl::StatusOr<FaultCounts> LoseThreads(const FaultOptions& options);

}  // namespace lockstep
