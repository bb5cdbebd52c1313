// The faults of training programs that //tools/divergence is held to: each is put into a strategy,
// and //tools/divergence must name the operation and the tensor.

#pragma once

#include <string>
#include <vector>

#include "core/run/strategy/strategy.h"

namespace lockstep {

struct InjectedFault {
  std::string name;             // "a bias that is added on each tensor-parallel rank"
  std::string workload;         // the experiment whose model, data and optimizer the fault concerns
  StrategyDefinition strategy;  // with the fault
  // "key=value", as --set takes them: of the mesh, and of the cut where it matters. A run without
  // the fault agrees with `single` under the same keys of [cut].
  std::vector<std::string> assignments = {};
  // Keys that the run with the fault and the one without both need, such as dropout.
  std::vector<std::string> needs = {};
  bool acts_on_resume = false;  // the fault lies in what a resumed run restores
};

// All 16 faults. Each acts in the first or second step.
std::vector<InjectedFault> AllFaults();

// One of them, by its name, which must be there.
InjectedFault FaultNamed(const std::string& name);

}  // namespace lockstep
