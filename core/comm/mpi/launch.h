// Runs a rank that a launcher has started.

#pragma once

#include <functional>

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
// The outcome is OK if all ranks were, as far as this one knows; else it holds the first cause,
// preceded by "rank 2: " if that is what rank 2 has reported. It goes to `say` first: launchers
// kill all processes as soon as one of them has ended, so the ranks wait for each other once more
// when each has said what there is to say. After an error, MPI cannot be stopped any more
// (Process::Abandon).
struct Outcome {
  absl::Status status{};
  int reported_by = -1;  // the rank whose own report `status` is; -1: no rank's
  // Whether this rank is the one to tell the user: among ranks that can still hear each other, one
  // is, however many have noticed the failure.
  bool is_told_here = false;
};
Outcome RunRank(Process& process, int ranks, const LaunchOptions& options, const RankFunction& run,
                const std::function<void(const Outcome&)>& say = nullptr);

}  // namespace lockstep::mpi
