#pragma once

#include <vector>

#include "core/run/strategy.h"

namespace lockstep {

// Every strategy, in the order of PRESETS in presets.bzl.
std::vector<StrategyDefinition> AllStrategies();

}  // namespace lockstep
