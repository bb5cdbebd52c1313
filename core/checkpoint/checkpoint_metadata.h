#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>

#include "absl/status/statusor.h"

namespace lockstep {

// What a checkpoint says beside its tensors.
struct CheckpointInfo {
  int64_t step = 0;           // steps done: training goes on with this one
  std::string model = {};     // fingerprint of the model's configuration
  std::string strategy = {};  // that wrote it; any may read it
  std::string base = {};      // hash of what its adapters were trained on; empty: has no adapters
  // What else shapes the curve: keys of the configuration ("train.seed", "data.path"), with the
  // values in effect as TOML.
  std::map<std::string, std::string> keys = {};
  // Steps behind the newest check of the run's bits (guard.every) when it was saved; none in runs
  // without checks.
  std::optional<int64_t> checked_steps = {};

  friend bool operator==(const CheckpointInfo&, const CheckpointInfo&) = default;
};

// The place of one file among the files of a checkpoint.
struct ShardNumber {
  int64_t shard = 0;  // of `shards`, counted from 0; files count from 1
  int64_t shards = 1;
  std::string set = {};  // the same in files that were saved together, and in no others
};

// What a file of a checkpoint says of itself, in the metadata of the safetensors format.
struct CheckpointMetadata {
  CheckpointInfo info;
  std::optional<ShardNumber> shard = {};  // none: the file is the whole checkpoint
};

std::map<std::string, std::string> FormatCheckpointMetadata(const CheckpointMetadata& metadata);

// Whether a file with such metadata is a checkpoint, or a shard of one.
bool IsOfCheckpoint(const std::map<std::string, std::string>& metadata);

// The reverse of FormatCheckpointMetadata. FailedPrecondition if `path` is no file of a checkpoint,
// or one of an older version, InvalidArgument if its metadata makes no sense.
absl::StatusOr<CheckpointMetadata> ParseCheckpointMetadata(
    const std::map<std::string, std::string>& metadata, const std::string& path);

// The key under which a shard says which slice of the tensor `name` it holds (TensorSlice); without
// it, it holds the whole.
std::string PartKey(const std::string& name);

}  // namespace lockstep
