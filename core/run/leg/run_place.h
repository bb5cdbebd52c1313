#pragma once

#include <cstdint>
#include <functional>

namespace lockstep {

// Where a rank of a run is.
struct RunPlace {
  enum class Where {
    kStepBegin,
    kMicroBatch,  // amid a step: before the strategy gets a micro-batch; peers may be in a call
    kStepEnd,     // the loss is known on this rank
    kCheckpoint,  // the state has been handed to the writer of a checkpoint, which goes on
    kLegEnd,      // the leg's last step is done; its checkpoint may still be written
    kMeshChange,  // the next leg's mesh is made, and its state not yet moved
  };
  int rank = 0;
  int64_t step = 0;  // from 0; at a change of mesh, that of the next one
  Where where = Where::kStepBegin;
};

// Told of each place on the rank's own thread, by several ranks at once. What it throws ends the
// rank there, as if the rank itself had thrown it.
using PlaceVisitor = std::function<void(const RunPlace&)>;

}  // namespace lockstep
