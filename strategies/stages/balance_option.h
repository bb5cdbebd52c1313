#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "core/config/config_reader.h"
#include "core/run/strategy.h"
#include "strategies/stages/balance.h"
#include "strategies/stages/block_profile.h"

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

// How many blocks each stage gets, of which there are at most as many as the model has blocks, as
// the option says; what was given is not checked (DivideBlocks does). Rank `rank_of_stage[s]` has
// stage s. The same on all ranks, which call it together: to measure, rank 0 of the world runs a
// model of its own and tells the others. A stage keeps the activations of `micro_batches_in_flight`
// at a time. Throws StatusException.
std::vector<int64_t> FindBalance(const StrategyInputs& inputs, const BalanceOption& option,
                                 const std::vector<int>& rank_of_stage,
                                 int64_t micro_batches_in_flight = 1);

// What EvenBalance evens out: nanoseconds, or bytes.
std::vector<int64_t> TimeCosts(const std::vector<BlockProfile>& profiles);
std::vector<int64_t> SizeCosts(const std::vector<BlockProfile>& profiles,
                               int64_t micro_batches_in_flight);

}  // namespace lockstep
