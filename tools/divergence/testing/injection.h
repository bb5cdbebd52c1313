// Faults that are put into a strategy, its layers, its kernels or its communicators, by hooks that
// no program but tests has.

#pragma once

#include <cstdint>
#include <functional>
#include <set>
#include <string>
#include <vector>

#include "core/checkpoint/state_tensor.h"
#include "core/data/dataset.h"
#include "core/run/strategy/strategy.h"
#include "tools/divergence/testing/faulty_kernels.h"

namespace lockstep {

// What goes wrong on one rank. All members may be left out.
struct Injection {
  KernelFaults kernels = {};
  std::set<std::string> lost = {};  // labels of calls; see FaultyCommunicator
  // Changes the order or the content of the rank's micro-batches of a step.
  std::function<void(std::vector<Batch>&)> batches = nullptr;
  // Changes the state before a step.
  std::function<void(int64_t step, const std::vector<StateTensor>&)> before_step = nullptr;
  // Changes the state that a checkpoint has filled.
  std::function<void(const std::vector<StateTensor>&)> restored = nullptr;
  // Runs when the strategy has been made: hooks that it adds to blocks run behind the strategy's.
  std::function<void()> made = nullptr;
};

// Says what goes wrong on a rank, before the strategy is made from `inputs`: hooks that it adds to
// blocks run before the strategy's.
using Inject = std::function<void(const StrategyInputs& inputs, Injection& injection)>;

// The strategy with a fault. Its ranks compute on the CPU.
StrategyDefinition WithFault(const StrategyDefinition& sound, Inject inject);

}  // namespace lockstep
