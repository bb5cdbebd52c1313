// What ranks tell each other that write a checkpoint together.

#pragma once

#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "core/checkpoint/checkpoint_metadata.h"
#include "core/checkpoint/state_tensor.h"
#include "core/comm/communicator.h"

namespace lockstep {

// The error of the first rank that has one, on all ranks.
absl::Status AgreeOnError(const absl::Status& own, Communicator& ranks);

// The number of the shard that this rank writes. Ranks that write none call it all the same.
absl::StatusOr<ShardNumber> NumberShards(const std::vector<StateTensor>& state,
                                         Communicator& ranks);

}  // namespace lockstep
