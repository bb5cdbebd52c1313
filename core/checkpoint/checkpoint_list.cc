#include "core/checkpoint/checkpoint_list.h"

#include <algorithm>
#include <utility>

#include "core/base/file.h"
#include "core/base/status.h"
#include "core/checkpoint/checkpoint_metadata.h"
#include "core/checkpoint/in_memory.h"
#include "core/checkpoint/safetensors.h"

namespace lockstep {
namespace {

// The step that a checkpoint states, in its first file.
absl::StatusOr<int64_t> StepOf(const std::string& path) {
  std::string file = path;
  if (IsDirectory(path)) {
    LS_ASSIGN_OR_RETURN(const std::vector<std::string> shards, ListShards(path));
    file = shards[0];
  }
  LS_ASSIGN_OR_RETURN(const SafetensorsReader reader, SafetensorsReader::Open(file));
  LS_ASSIGN_OR_RETURN(const CheckpointMetadata metadata,
                      ParseCheckpointMetadata(reader.metadata(), file));
  return metadata.info.step;
}

std::vector<FoundCheckpoint> ByOwnSteps(std::vector<FoundCheckpoint> all) {
  for (FoundCheckpoint& found : all) {
    const absl::StatusOr<int64_t> step = StepOf(found.path);
    if (step.ok()) found.step = *step;
  }
  std::stable_sort(all.begin(), all.end(),
                   [](const auto& a, const auto& b) { return a.step < b.step; });
  return all;
}

}  // namespace

absl::StatusOr<std::vector<FoundCheckpoint>> CheckpointsByStep(const std::string& folder) {
  LS_ASSIGN_OR_RETURN(std::vector<FoundCheckpoint> all, ListCheckpoints(folder));
  return ByOwnSteps(std::move(all));
}

absl::StatusOr<std::vector<FoundCheckpoint>> RunCheckpointsByStep(
    const std::string& run_directory) {
  LS_ASSIGN_OR_RETURN(std::vector<FoundCheckpoint> all, ListRunCheckpoints(run_directory));
  std::erase_if(all, [](const FoundCheckpoint& found) { return IsApart(found.path); });
  return ByOwnSteps(std::move(all));
}

}  // namespace lockstep
