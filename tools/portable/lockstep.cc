// All strategies in one program, the checker of their curves, and with CUDA the tests and
// benchmarks of GPUs: `lockstep ddp ...` does what the program of ddp does. Kernels of GPUs are
// large; here they are once.

#include <cstdio>
#include <string>
#include <utility>
#include <vector>

#include "core/run/main.h"
#include "foresight/prediction.h"
#include "models/models.h"
#include "strategies/presets.h"
#include "tools/curve/curve_main.h"
#include "tools/portable/commands.h"

int main(int argc, char** argv) {
  using namespace lockstep;
  std::vector<Command> commands;
  for (const StrategyDefinition& strategy : AllStrategies()) {
    commands.push_back({strategy.name, [strategy](int count, char** values) {
                          return TrainMain(count, values, strategy, MakeModel, PredictStepTime,
                                           LegStrategies());
                        }});
  }
  commands.push_back({"curve", CurveMain});
  for (Command& command : GpuCommands()) commands.push_back(std::move(command));
  const std::string wanted = argc > 1 ? argv[1] : "";
  std::string names;
  for (const Command& command : commands) {
    if (command.name == wanted) return command.run(argc - 1, argv + 1);
    names += (names.empty() ? "" : ", ") + command.name;
  }
  const bool is_help = wanted == "--help";
  std::fprintf(is_help ? stdout : stderr, "lockstep: the first argument is one of %s%s\n",
               names.c_str(),
               wanted.empty() || is_help ? "" : ("; there is none \"" + wanted + "\"").c_str());
  return is_help ? 0 : 1;
}
