#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "core/checkpoint/checkpoint_folder.h"

namespace lockstep {

// The checkpoints of a folder, oldest first, by the steps that they state themselves. A checkpoint
// that cannot be read keeps the step of its name: whoever loads it hears what is wrong.
absl::StatusOr<std::vector<FoundCheckpoint>> CheckpointsByStep(const std::string& folder);
// The checkpoints of a run, on the disk and in memory (core/checkpoint/in_memory.h), likewise.
absl::StatusOr<std::vector<FoundCheckpoint>> RunCheckpointsByStep(const std::string& run_directory);

}  // namespace lockstep
