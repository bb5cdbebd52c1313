#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "core/config/config_reader.h"
#include "core/nn/model.h"
#include "core/report/block_profile.h"
#include "strategies/stages/balance.h"

namespace lockstep {

// The option `balance` of strategies whose ranks have stages: how many blocks each stage gets.
struct BalanceOption {
  enum class By {
    kGiven,  // [n1, n2, ...]
    kCost,   // "cost", the default: multiply-adds of a step, as the model states them
    kTime,   // "time": forward and backward, measured
    kSize,   // "size": bytes of activations, measured, and of what is kept for parameters
  };
  By by = By::kCost;
  std::vector<int64_t> given = {};
};

BalanceOption ReadBalance(ConfigReader& reader);

// Whether FindBalance needs profiles of the blocks.
bool NeedsProfiles(const BalanceOption& option);

// How many blocks each stage gets, of which there are at most as many as the model has blocks, as
// the option says; what was given is not checked (DivideBlocks does). Rank `rank_of_stage[s]` has
// stage s. `profiles`: by block, if needed. A stage keeps the activations of
// `micro_batches_in_flight` at a time.
std::vector<int64_t> FindBalance(const Model& model, const std::vector<BlockProfile>& profiles,
                                 const BalanceOption& option, const std::vector<int>& rank_of_stage,
                                 int64_t micro_batches_in_flight = 1);

// What was measured, and how to have the same division again; empty where nothing was.
std::string DescribeBalance(const Model& model, const std::vector<BlockProfile>& profiles,
                            const BalanceOption& option, const std::vector<int64_t>& balance,
                            int64_t micro_batches_in_flight = 1);

// What EvenBalance evens out: nanoseconds, or bytes.
std::vector<int64_t> TimeCosts(const std::vector<BlockProfile>& profiles);
std::vector<int64_t> SizeCosts(const std::vector<BlockProfile>& profiles,
                               int64_t micro_batches_in_flight);

}  // namespace lockstep
