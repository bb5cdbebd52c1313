// Runs a rank that a launcher has started.

#pragma once

#include "absl/status/status.h"
#include "core/comm/mpi/process.h"
#include "core/comm/rank_handle.h"

namespace lockstep::mpi {

// Calls `run` as the rank that this process is in a world of the first `ranks` processes, and
// returns when it has returned and the other ranks are over as well. All processes call this; those
// beyond the world return at once. A rank that returns an error or throws a std::exception ends the
// waits of the others, as RunRanks of core/comm/launch.h has it, and so does one that dies: mpirun
// and srun tell the others to stop then, and if they do not, the timeout ends their waits.
//
// Returns OK if all ranks did, as far as this one knows; else the first cause, preceded by
// "rank 2: " if that is what rank 2 has reported. After an error, MPI is not stopped any more
// (Process::Abandon): leave the process soon.
absl::Status RunRank(Process& process, int ranks, const LaunchOptions& options,
                     const RankFunction& run);

}  // namespace lockstep::mpi
