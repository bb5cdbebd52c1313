#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "core/checkpoint/checkpoint_metadata.h"
#include "core/checkpoint/checkpoint_writer.h"  // SaveOptions
#include "core/checkpoint/state_tensor.h"
#include "core/comm/communicator.h"
#include "core/kernels/kernels.h"

namespace lockstep {

// Checkpoints of a run lie in one folder, parameters, buffers and optimizer state together, each a
// whole safetensors file or a folder of shards (core/checkpoint/checkpoint_folder.h). One appears
// under its name when it is whole, and any number of ranks loads what any other has saved.

// Called by all ranks with the same names in the same order: writes a checkpoint, each rank the
// parts that it is the writer of, which together are each tensor once. No data goes from rank to
// rank but checksums. An error on one rank is that error on all, and leaves what was there before:
// OutOfRange for weights that are infinite or NaN, DataLoss where the run's directory, around
// `folder`, is not there. CheckpointWriter does so beside training.
absl::Status SaveCheckpoint(const std::string& folder, const CheckpointInfo& info,
                            const std::vector<StateTensor>& state, const SaveOptions& options,
                            Kernels& kernels, Communicator& ranks);

// The newest checkpoint of a folder, by the step that its own metadata states; none if there is
// none.
absl::StatusOr<std::optional<std::string>> NewestCheckpoint(const std::string& folder);

// What a checkpoint says of itself.
absl::StatusOr<CheckpointInfo> ReadCheckpointInfo(const std::string& path);

// What a checkpoint must belong to: as of CheckpointInfo.
struct CheckpointOrigin {
  std::string model;
  std::string base = {};
  std::map<std::string, std::string> keys = {};
  // Keys that may differ, and tables of such ("data").
  std::vector<std::string> allowed_changes = {};
};

// Fills the tensors of `state` from a checkpoint, reading no more than that. Everything is checked
// before anything is written: that all files are there and sound, that they are of this origin, and
// that they have exactly these tensors with these shapes, each element once; else
// FailedPrecondition, naming the file and, where the configuration differs, the keys, or an error
// for which IsDamage holds. What is read is held to its checksums: DataLoss names the file and the
// tensor, and leaves some tensors filled.
absl::StatusOr<CheckpointInfo> LoadCheckpoint(const std::string& path,
                                              const CheckpointOrigin& origin,
                                              const std::vector<StateTensor>& state,
                                              Kernels& kernels);

}  // namespace lockstep
