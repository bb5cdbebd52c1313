#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "tools/bench/faults/fault_kind.h"
#include "tools/bench/faults/fault_runs.h"

namespace lockstep {

// A run that changes strategy and mesh at random steps, for each model and precision.
FaultKind MeshChangesKind();

// The workloads of MeshChangesKind(). Over them, the legs visit every preset but `lora`, which
// trains other parameters.
std::vector<FaultWorkload> MeshChangeWorkloads();

// The same for chosen workloads, `options.count` changes in each. The `losses.csv` and the hash of
// each run must be those of `single`.
absl::StatusOr<FaultCounts> ChangeMeshes(const FaultOptions& options,
                                         const std::vector<FaultWorkload>& workloads);

// Legs of a run with `changes` changes at random steps, each to another formation than before,
// as --legs takes them: "17: ddp dp=4; 3: single". Formations come in a random order; none is used
// twice before all were.
std::string RandomLegs(const FaultWorkload& workload, int changes, uint64_t seed);

}  // namespace lockstep
