#pragma once

#include "absl/status/statusor.h"

namespace lockstep {

// The ranks of a run, as this process sees them.
struct RanksHere {
  int ranks = 1;       // of the run
  int processes = 0;   // on this machine, each of which is a rank; 0: ranks are threads of this one
  int own_number = 0;  // of this process among those
  bool has_first = true;  // whether rank 0 is here
};

// Which GPUs ranks compute on, and how they reach each other.
struct GpuPlaces {
  enum class Kind {
    kShared,  // all on one, where data moves by copies and reductions of our own
    kOwn,     // each on its own, over NCCL, which refuses ranks that share one
  };
  Kind kind = Kind::kShared;
  int first = 0;  // the GPU of this process's first rank; of kOwn, its others have the following
};

// For a machine with `gpus` GPUs, at least 1. Unavailable where processes would have to share one.
absl::StatusOr<GpuPlaces> PlaceOnGpus(int gpus, const RanksHere& ranks);

}  // namespace lockstep
