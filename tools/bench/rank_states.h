#pragma once

#include <array>
#include <memory>
#include <string>

#include "core/run/strategy/strategy.h"
#include "tools/bench/flip_runs.h"

namespace lockstep {

// What a run's ranks hold, by rank. An entry is touched by its rank's own thread alone, while the
// run goes on.
struct RankStates {
  std::array<Strategy*, kFlipRanks> strategies = {};
  std::array<std::string, kFlipRanks> bytes;  // of the state after the last step

  bool are_same() const { return bytes[0] == bytes[1] && bytes[0] == bytes[2]; }
};

// The same strategy, which tells RankStates of each rank. For runs in which no rank takes another's
// role.
StrategyDefinition Telling(StrategyDefinition strategy, const std::shared_ptr<RankStates>& states);

}  // namespace lockstep
