#pragma once

#include <string>
#include <vector>

#include "tools/bench/faults/fault_kind.h"

namespace lockstep {

// What the machine around a run does to it.
enum class EnvironmentFault {
  kStoppedRank,       // SIGSTOP of one rank that is a process; the run ends
  kRestartedRank,     // the same under a launcher that may start ranks again; the run goes on
  kLinkDown,          // the network between two hosts, in mid-step. Needs root
  kFullDisk,          // the disk of the run's directory. Needs mounts
  kFileSizeLimit,     // ulimit -f, which lowers what files may take in mid-run
  kReadOnlyDisk,      // the file system of the checkpoints, in mid-run. Needs mounts
  kRemovedDirectory,  // the run's directory and all in it
  kTwoRuns,           // another run is told to write into the same directory
};

// All of them, and those that need no rights.
std::vector<EnvironmentFault> AllEnvironmentFaults();
std::vector<EnvironmentFault> UnprivilegedEnvironmentFaults();

// Each of AllEnvironmentFaults, `count` times.
FaultKind EnvironmentFaultsKind();

// Brings each fault about `options.count` times, at a random step, in runs with ranks as threads
// and as processes in turn. The run must end within its timeout and some seconds, with exactly one
// message, which names the cause, and leave no process; no checkpoint that was whole before is
// lost, and once the cause is gone the run goes on from the newest to the undisturbed run's
// losses.csv and hash. Faults that the machine does not permit are named in `details`.
absl::StatusOr<FaultCounts> DisturbEnvironment(const FaultOptions& options,
                                               const std::vector<EnvironmentFault>& faults);

// The messages on a run's standard error stream, without the lines that say what is trained.
std::vector<std::string> MessagesOf(const std::string& err);

}  // namespace lockstep
