#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "core/comm/communicator.h"
#include "core/kernels/kernels.h"
#include "core/tensor/tensor.h"

namespace lockstep {

// A tensor that a checkpoint keeps: a parameter, a buffer, a piece of optimizer state; or this
// rank's part of one.
struct StateTensor {
  std::string name;
  Tensor tensor;
  Shape full_shape;       // of the whole
  int64_t first = 0;      // this part's first element in the whole
  bool is_writer = true;  // whether this rank saves it: of replicas, one does
};

// What a checkpoint says beside its tensors.
struct CheckpointInfo {
  int64_t step = 0;      // steps done: training goes on with this one
  std::string model;     // fingerprint of the model's configuration
  std::string strategy;  // that wrote it; any may read it
};

// Checkpoints of a run lie in one folder as step-<number>.safetensors, parameters, buffers and
// optimizer state together. A file appears under its name when it is whole.

// Called by all ranks with the same names in the same order: writes one, each rank the parts that
// it is the writer of, all into the same file, and deletes all but the `keep` newest. An error on
// one rank is one on all, and leaves no file.
absl::Status SaveCheckpoint(const std::string& folder, const CheckpointInfo& info,
                            const std::vector<StateTensor>& state, int64_t keep, Kernels& kernels,
                            Communicator& ranks);

// The newest checkpoint of a folder; none if there is none. Does not look inside.
absl::StatusOr<std::optional<std::string>> NewestCheckpoint(const std::string& folder);

// Fills the tensors of `state` from a file. Everything is checked before anything is written: that
// the file is sound, that it belongs to a model of configuration `model`, and that it has exactly
// these tensors with these shapes; else FailedPrecondition or InvalidArgument, naming the file.
absl::StatusOr<CheckpointInfo> LoadCheckpoint(const std::string& path, const std::string& model,
                                              const std::vector<StateTensor>& state,
                                              Kernels& kernels);

}  // namespace lockstep
