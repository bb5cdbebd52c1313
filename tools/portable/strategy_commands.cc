#include "core/run/main.h"
#include "models/models.h"
#include "strategies/presets.h"
#include "tools/portable/commands.h"

namespace lockstep {

std::vector<Command> StrategyCommands() {
  std::vector<Command> commands;
  for (const StrategyDefinition& strategy : AllStrategies()) {
    commands.push_back({strategy.name, [strategy](int argc, char** argv) {
                          return TrainMain(argc, argv, strategy, MakeModel);
                        }});
  }
  return commands;
}

}  // namespace lockstep
