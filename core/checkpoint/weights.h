#pragma once

#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "core/checkpoint/checkpoint_metadata.h"
#include "core/checkpoint/state_tensor.h"
#include "core/kernels/kernels.h"
#include "core/nn/published.h"

namespace lockstep {

// Weights to start from: a checkpoint of ours (a whole file or a folder of shards), of which the
// optimizer's state is left alone; a run's directory, which stands for its newest checkpoint; or a
// safetensors file with the names of `names`.

// Whether the file at `path` holds exactly the weights of `state`: parameters and running
// statistics, or parts of them; what belongs to the optimizer in it is passed over. An error names
// the file and says what does not fit.
absl::Status CheckWeights(const std::string& path, const PublishedNames& names,
                          const std::vector<StateTensor>& state);

// The same, and fills them, reading only what they hold.
absl::Status LoadWeights(const std::string& path, const PublishedNames& names,
                         const std::vector<StateTensor>& state, Kernels& kernels);

// Returns what a checkpoint, or the newest one of a run's directory, says of itself; nullopt for
// weights with the names of `names`, which say nothing of a run.
absl::StatusOr<std::optional<CheckpointInfo>> ReadInfoOfWeights(const std::string& path,
                                                                const PublishedNames& names);

}  // namespace lockstep
