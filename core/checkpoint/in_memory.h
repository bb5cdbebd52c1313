// A run's checkpoints in the memory of the machine (checkpoint.in_memory_every), beside those on
// its disk: files of the same form in a folder of /dev/shm, which outlives the ranks that wrote
// them, threads or processes, and whoever has started these. It does not outlive the machine, nor
// is it seen from another one.

#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "core/checkpoint/checkpoint_folder.h"

namespace lockstep {

// The folder of a run directory that exists; empty where it does not. The folder may not be there.
std::string InMemoryFolder(const std::string& run_directory);

// Whether the path of a checkpoint is in memory.
bool IsInMemory(const std::string& checkpoint);

// Makes the folder, for nobody but this user, and checks that there is room for `bytes` beside what
// it holds. FailedPrecondition where this machine has no /dev/shm or another user has the folder,
// ResourceExhausted where there is no room.
absl::Status MakeInMemoryFolder(const std::string& run_directory, int64_t bytes);

// Removes the folder, if it is there.
void RemoveInMemoryFolder(const std::string& run_directory);

// The checkpoints of a run on the disk and in memory, oldest first by their names; of two with the
// same step the one in memory comes later.
absl::StatusOr<std::vector<FoundCheckpoint>> ListRunCheckpoints(const std::string& run_directory);

}  // namespace lockstep
