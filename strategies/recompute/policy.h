#pragma once

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "core/config/config.h"
#include "core/nn/model.h"
#include "strategies/recompute/checkpointing.h"

namespace lockstep {

// What backward computes again instead of keeping it from forward: the table [recompute]
// (docs/configuration.md). Parts may lie in each other: a block of a stage that is recomputed is
// then run a third time. The granularities are those of Megatron's --recompute-granularity
// (Korthikanti et al., "Reducing Activation Recomputation in Large Transformer Models", 2022).
struct RecomputePolicy {
  Checkpointing micro_batches = Checkpointing::kNever;  // of which a stage keeps its inputs only
  std::vector<std::string> blocks = {};                 // patterns (MatchesLayer)
  std::vector<std::string> operations = {};             // kinds, in all blocks that have them
};

inline constexpr char kRecomputeTable[] = "recompute";

// Reads the table. InvalidArgument with all problems.
absl::StatusOr<RecomputePolicy> ReadRecomputePolicy(const Config& config);

// Tells the blocks. InvalidArgument lists the patterns that match no block, with the names near to
// each, and the operations that the model does not have, with those that it has.
absl::Status ApplyRecomputePolicy(const RecomputePolicy& policy, Model& model);

}  // namespace lockstep
