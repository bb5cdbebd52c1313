#pragma once

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "core/config/config.h"
#include "core/nn/model.h"
#include "strategies/recompute/checkpointing.h"

namespace lockstep {

// What backward computes again instead of keeping it from forward: the table [recompute]. Parts may
// lie in each other: a block of a stage that is recomputed is then run a third time.
//
// micro_batches ("never"; gpipe and fsdp_pipe default to "except_last"): always, except_last or
// never; the micro-batches of which a stage keeps its inputs only.
//
// blocks ([]): patterns (MatchesLayer) of the blocks that keep their inputs only. Backward
// recomputes one block at a time, when it reaches the block.
//
// operations ([]): kinds of operations that keep their inputs only, in all blocks that have them:
// "attention" (softmax(Q K^T) V) and "mlp" in transformers, "convolution" (with its normalisation
// and activation) in ResNets and U-Nets.
//
// granularity ("none"): none, full or selective, in place of blocks and operations, in the words of
// Megatron's --recompute-granularity: full is blocks = ["*"], selective is operations =
// ["attention"] (Korthikanti et al., "Reducing Activation Recomputation in Large Transformer
// Models", 2022).
struct RecomputePolicy {
  Checkpointing micro_batches = Checkpointing::kNever;
  std::vector<std::string> blocks = {};
  std::vector<std::string> operations = {};
};

inline constexpr char kRecomputeTable[] = "recompute";

// Reads the table. InvalidArgument with all problems.
absl::StatusOr<RecomputePolicy> ReadRecomputePolicy(const Config& config);

// InvalidArgument lists the patterns that match no block, with the names near to each, and the
// operations that the model does not have, with those that it has.
absl::Status CheckRecomputePolicy(const RecomputePolicy& policy, const Model& model);

// Tells the blocks. Requires CheckRecomputePolicy.
void ApplyRecomputePolicy(const RecomputePolicy& policy, Model& model);

}  // namespace lockstep
