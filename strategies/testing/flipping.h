#pragma once

#include <cstdint>
#include <memory>

#include "core/run/strategy.h"

namespace lockstep {

// One bit of one rank that flips while a step is trained.
struct Flip {
  enum class Target {
    kRestingState,  // a tensor of the state, before the step: after whatever looked at it last
    kState,         // the same, when the step has updated it
    kIdleState,     // the same, in the validation after the step
    kPass,          // what leaves a block or layer, or its gradient, on its way to the next
  };

  Target target = Target::kState;
  int rank = 0;
  int64_t step = 0;  // counted from 0
  // Which of the tensors: its index in the state, or among those of the pass, modulo their number;
  // and which of its bits, modulo their number.
  uint64_t tensor = 0;
  uint64_t bit = 0;
  // The flip happens where the step is trained for this time, as steps are repeated; -1: each time.
  int time = 0;
};

// A strategy on a machine that loses a bit. `tensors`: how many floating-point tensors a pass of a
// step has on each rank; more than 0 where the target is kPass.
StrategyDefinition WithFlip(StrategyDefinition strategy, const Flip& flip, uint64_t tensors = 0);

// The same strategy, which leaves in `tensors`, by rank, how many floating-point tensors the last
// step's pass had.
StrategyDefinition WithCount(StrategyDefinition strategy, std::shared_ptr<uint64_t[]> tensors);

}  // namespace lockstep
