#include <vector>

#include "tools/bench/faults/fault_kind.h"
#include "tools/bench/faults/mesh_changes.h"
#include "tools/bench/faults/process_kills.h"

namespace lockstep {

std::vector<FaultKind> AllFaultKinds() { return {MeshChangesKind(), ProcessKillsKind()}; }

}  // namespace lockstep
