// Where the checkpoints of a run lie, side by side in one folder:
//
//   step-00000012.safetensors                 one whole file, or
//   step-00000012/                            a folder of shards,
//     shard-00001-of-00004.safetensors ...    one of each rank that saves anything,
//     manifest.json                           and what they are (manifest.h)
//
// Either appears under its name by one rename, when all of it is on the disk. What has ".tmp" in
// its name is a draft, or what is left of one.

#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "core/checkpoint/checkpoint_files.h"

namespace lockstep {

std::string CheckpointPath(const std::string& folder, int64_t step, CheckpointFiles files);
// The path of shard 0, 1, ... shards - 1; names count from 1.
std::string ShardPath(const std::string& checkpoint, int64_t shard, int64_t shards);

struct FoundCheckpoint {
  int64_t step = 0;
  std::string path;
};
// The checkpoints of a folder, oldest first by their names; none if there is no folder. Does not
// look inside.
absl::StatusOr<std::vector<FoundCheckpoint>> ListCheckpoints(const std::string& folder);

// A checkpoint that was set aside (SetAsideDamaged, SetAsideSuspect).
struct SetAsideCheckpoint {
  int64_t step = 0;  // by its name
  std::string path;
  bool is_damaged = false;  // else suspect
};
// The checkpoints of a folder that were set aside, oldest first by their names; none if there is no
// folder. Does not look inside.
absl::StatusOr<std::vector<SetAsideCheckpoint>> ListSetAside(const std::string& folder);

// Whether a path that exists is one checkpoint, sound or not: a file; or a folder that has the name
// of a checkpoint, or holds a shard.
bool IsOneCheckpoint(const std::string& path);

// The shards of a checkpoint, in order. An error names the file that is missing or does not belong
// there.
absl::StatusOr<std::vector<std::string>> ListShards(const std::string& checkpoint);

// Bytes of a checkpoint, all its files together that are there.
absl::StatusOr<int64_t> CheckpointBytes(const std::string& checkpoint);

// --- for the one rank that tidies up; nobody else changes the folder meanwhile ------------------

// The name, beside its own, under which a checkpoint is written.
std::string DraftPath(const std::string& checkpoint);
// Removes drafts that a kill has left.
void RemoveDrafts(const std::string& folder);
// Gives a finished draft its own name. A checkpoint that has the name is replaced: killed or
// failing at any time, this leaves the old one, the new one or both.
absl::Status Publish(const std::string& checkpoint);
// Renames a damaged checkpoint, or one whose bits may be wrong though its checksums are right, so
// that it no longer counts as one of the folder's. Returns its new name.
absl::StatusOr<std::string> SetAsideDamaged(const std::string& checkpoint);
absl::StatusOr<std::string> SetAsideSuspect(const std::string& checkpoint);
// Deletes all but the `keep` newest of a folder's checkpoints, `all`, oldest first; and those of
// the step of `newest` beside it. The newest one with at most `checked_steps` steps also stays.
void KeepNewest(const std::vector<FoundCheckpoint>& all, const FoundCheckpoint& newest,
                int64_t keep, std::optional<int64_t> checked_steps = std::nullopt);

}  // namespace lockstep
