#pragma once

#include <memory>

#include "absl/status/statusor.h"
#include "absl/time/time.h"

namespace lockstep::mpi {

// How long MPI may take to start and to stop, and the exit code of a process whose MPI takes
// longer.
struct ProcessLimits {
  absl::Duration start = absl::Seconds(60);
  // From when this process has done its work until the others have, too.
  absl::Duration stop = absl::Seconds(60);
  int lost_exit_code = 1;
};

// This process as one of those that mpirun or srun has started. MPI can be started once in the life
// of a process, and is stopped when this object goes.
//
// SIGTERM is what launchers send to all ranks once one of them has died. From Start on it no longer
// ends the process but is there for Stopped() to see, so that the survivors can say what happened.
class Process {
 public:
  // Whether the environment tells of a launcher, be it an `mpirun -n 1`; without one, ranks are
  // threads. An error if srun has started several tasks that MPI could not bring together.
  static absl::StatusOr<bool> IsLaunched();

  // Starts MPI; before other threads are started, which would take SIGTERM otherwise. MPI waits for
  // all processes: where one does not come within `limits.start`, the others end with a message and
  // `limits.lost_exit_code`.
  static absl::StatusOr<std::unique_ptr<Process>> Start(const ProcessLimits& limits = {});

  // Stops MPI if all went well, which waits for all processes: where one does not come within
  // `limits.stop`, the others end with a message and `limits.lost_exit_code`, though their work is
  // done. Otherwise (Abandon) the launcher finds a process gone without it,
  // and ends the others.
  ~Process();
  Process(const Process&) = delete;
  Process& operator=(const Process&) = delete;

  int rank() const { return rank_; }
  int size() const { return size_; }
  int ranks_here() const { return ranks_here_; }  // on this machine
  // Whether this machine has a core for each of its ranks: then a wait may poll.
  bool has_own_core() const { return has_own_core_; }
  // The exit code of a process that has to end at once because others are not there any more.
  int lost_exit_code() const { return limits_.lost_exit_code; }

  // Whether SIGTERM has come. Never blocks.
  bool Stopped();

  // Leaves MPI alone when this object goes: stopping it would wait for ranks that are not there.
  void Abandon() { abandoned_ = true; }

  // Worlds of one process follow each other; each has a number, the same on all ranks.
  int NextWorld() { return worlds_++; }

 private:
  explicit Process(const ProcessLimits& limits) : limits_(limits) {}

  const ProcessLimits limits_;
  int rank_ = 0;
  int size_ = 1;
  int ranks_here_ = 1;
  bool has_own_core_ = false;
  bool abandoned_ = false;
  bool stopped_ = false;
  int signals_ = -1;  // a signalfd for SIGTERM
  int worlds_ = 0;
};

}  // namespace lockstep::mpi
