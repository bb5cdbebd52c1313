#pragma once

#include "strategies/engine/preset.h"

namespace lockstep {

// The engine with every key open: any mesh, schedule and division that the configuration names. It
// runs what a plan writes (//tools/plan, docs/planning.md). Its defaults are one rank.
inline StrategyDefinition MeshStrategy() { return EnginePreset("mesh", {}); }

}  // namespace lockstep
