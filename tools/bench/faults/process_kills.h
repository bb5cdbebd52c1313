#pragma once

#include "tools/bench/faults/fault_kind.h"

namespace lockstep {

// kill -9 of processes of runs under //tools/launch: ranks, their workers, mpirun and the launcher
// itself, at random moments of a step, while a checkpoint is written, at a change of mesh, and
// while ranks are being started again. Each other kill is one of a rank amid a call to other ranks
// (call_kill.h). Every second run copies its state into memory after each step
// (checkpoint.in_memory_every), so that half of the kills meet copies in memory and half meet
// checkpoints on the disk alone.
FaultKind ProcessKillsKind();

// Every run must go on by itself (a killed launcher: when the same command is given again), end
// with the undisturbed run's losses.csv and hash, and leave no process and no file behind, in
// memory neither.
absl::StatusOr<FaultCounts> KillProcesses(const FaultOptions& options);

}  // namespace lockstep
