#pragma once

#include <cstdint>
#include <memory>

#include "core/run/strategy/strategy.h"
#include "strategies/testing/flipping_calls.h"

namespace lockstep {

// One bit of one rank (a processor, whatever its role in the mesh) that flips while a step is
// trained.
struct Flip {
  enum class Target {
    kRestingState,  // a tensor of the state, before the step: after whatever looked at it last
    kState,         // the same, when the step has updated it
    kIdleState,     // the same, in the validation after the step
    kPass,          // what leaves a block or layer, or its gradient, on its way to the next
    kGradient,      // the gradient of a parameter, before it is summed over ranks
    kSeenPass,      // kPass and kGradient, once others have seen it
    kSeenGradient,
    kStatistics,  // sums of batch statistics, when the rank hands them over to others
    kSent,        // what a call is to bring to other ranks
    kReceived,    // what a call has brought from other ranks
  };

  Target target = Target::kState;
  int rank = 0;
  int64_t step = 0;  // counted from 0
  // The tensor: its index in the state, or among the tensors of the pass or the calls, modulo their
  // number. The bit: its index in that tensor, modulo the number of bits.
  uint64_t tensor = 0;
  uint64_t bit = 0;
  // The flip happens where the step is trained for this time, as steps are repeated; -1: each time.
  int time = 0;
  // The flip happens in so many steps, one after another.
  int64_t steps = 1;
  static constexpr int64_t kForGood = int64_t{1} << 40;  // a processor that has gone wrong
};

// A strategy on a machine that loses a bit. `tensors`: how many floating-point tensors a step has
// on that rank of those that the target means; more than 0 where it is one of a pass or of
// calls. `calls`: of the run's devices (WithWatchedCalls), where it is kSent or kReceived.
StrategyDefinition WithFlip(StrategyDefinition strategy, const Flip& flip, uint64_t tensors = 0,
                            std::shared_ptr<CallFlips> calls = nullptr);

// The same strategy, which leaves in `tensors`, by rank, how many floating-point tensors the last
// step had of those that `target` means.
StrategyDefinition WithCount(StrategyDefinition strategy, Flip::Target target,
                             std::shared_ptr<uint64_t[]> tensors,
                             std::shared_ptr<CallFlips> calls = nullptr);

}  // namespace lockstep
