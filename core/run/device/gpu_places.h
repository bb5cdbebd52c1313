#pragma once

namespace lockstep {

// The ranks of a run, as this process sees them.
struct RanksHere {
  int ranks = 1;      // of the run
  int processes = 0;  // on this machine, each of which is a rank; 0: ranks are threads of this one
  bool has_first = true;  // whether rank 0 is here
};

// Which GPUs ranks compute on, and how they reach each other.
enum class GpuPlaces {
  kShared,  // all on the first one, where data moves by copies and reductions of our own
  kOwn,     // each on its own, over NCCL, which refuses ranks that share one
};

// For a process that sees `gpus` GPUs, at least 1. Threads share one where there are too few; of
// processes each has its own (own_gpu.h).
GpuPlaces PlaceOnGpus(int gpus, const RanksHere& ranks);

}  // namespace lockstep
