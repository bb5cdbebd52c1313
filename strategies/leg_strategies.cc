#include <vector>

#include "strategies/engine/preset.h"
#include "strategies/presets.h"

namespace lockstep {

std::vector<StrategyDefinition> LegStrategies() {
  std::vector<StrategyDefinition> strategies = AllStrategies();
  for (StrategyDefinition& strategy : strategies) {
    if (strategy.name == "single") strategy = EnginePreset(strategy.name, strategy.keys);
  }
  return strategies;
}

}  // namespace lockstep
