#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "core/nn/model.h"
#include "core/run/local_model.h"

namespace lockstep {

// What each block costs, relative to the others: the multiply-adds of a step (block_work.h).
std::vector<int64_t> BlockCosts(const Model& model);

// How many blocks each of `stages` stages gets, in order, so that the costliest stage costs as
// little as it can: the best of all divisions, found in O(stages x blocks^2). Requires 1 <= stages
// <= blocks, and costs that are not negative.
std::vector<int64_t> EvenBalance(const std::vector<int64_t>& costs, int stages);

// The same where rank `rank_of_stage[s]` has stage s. If stages lie in the shape of a V
// (schedules/v_shaped.h), the costliest rank costs as little as it can, and among such divisions
// the costliest stage; found in O(ranks x blocks^4). For any other placement it is the division
// above, which knows of stages only.
std::vector<int64_t> EvenBalance(const std::vector<int64_t>& costs,
                                 const std::vector<int>& rank_of_stage);

// The blocks of each stage: `balance` says how many; empty: EvenBalance of BlockCosts. A balance
// that is none of this model and number of stages is InvalidArgument; `key` is its name in the
// configuration.
absl::StatusOr<std::vector<BlockRange>> DivideBlocks(const Model& model,
                                                     const std::vector<int64_t>& balance,
                                                     int stages, const std::string& key);

}  // namespace lockstep
