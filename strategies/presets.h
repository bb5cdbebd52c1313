#pragma once

#include <vector>

#include "core/run/strategy/strategy.h"

namespace lockstep {

// Every strategy, in the order of PRESETS in presets.bzl.
std::vector<StrategyDefinition> AllStrategies();

// Those that a run's legs may name: all of them, with the engine on one rank as `single`, so that
// every leg takes the tables of the engine's mechanisms.
std::vector<StrategyDefinition> LegStrategies();

}  // namespace lockstep
