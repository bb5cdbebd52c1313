#include <vector>

#include "tools/bench/faults/bit_flips.h"
#include "tools/bench/faults/environment_faults.h"
#include "tools/bench/faults/fault_kind.h"
#include "tools/bench/faults/mesh_changes.h"
#include "tools/bench/faults/process_kills.h"
#include "tools/bench/faults/thread_losses.h"

namespace lockstep {

std::vector<FaultKind> AllFaultKinds() {
  return {MeshChangesKind(), ProcessKillsKind(), ThreadLossesKind(), EnvironmentFaultsKind(),
          BitFlipsKind()};
}

}  // namespace lockstep
