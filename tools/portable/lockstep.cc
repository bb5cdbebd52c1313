// All strategies in one program, which takes less room than one program each: `lockstep ddp ...`
// does what the program of ddp does.

#include <cstdio>
#include <string>
#include <vector>

#include "absl/strings/str_join.h"
#include "core/base/nearest.h"
#include "core/train/main.h"
#include "models/models.h"
#include "strategies/ddp/ddp.h"
#include "strategies/fsdp/fsdp.h"
#include "strategies/fsdp_pipe/fsdp_pipe.h"
#include "strategies/gpipe/gpipe.h"
#include "strategies/layerwise/layerwise.h"
#include "strategies/lora/lora.h"
#include "strategies/single/single.h"
#include "strategies/tp/tp.h"

int main(int argc, char** argv) {
  using namespace lockstep;
  const std::vector<StrategyDefinition> strategies = {
      SingleStrategy(), DdpStrategy(),   LayerwiseStrategy(), TpStrategy(),
      FsdpStrategy(),   GPipeStrategy(), FsdpPipeStrategy(),  LoraStrategy()};
  std::vector<std::string> names;
  for (const StrategyDefinition& strategy : strategies) names.push_back(strategy.name);
  const std::string wanted = argc > 1 ? argv[1] : "";
  for (const StrategyDefinition& strategy : strategies) {
    if (strategy.name == wanted) return TrainMain(argc - 1, argv + 1, strategy, MakeModel);
  }
  std::fprintf(stderr, "lockstep: the first argument is a strategy, one of %s%s\n",
               absl::StrJoin(names, ", ").c_str(),
               wanted.empty() ? "" : ("; there is none \"" + wanted + "\"").c_str());
  return 1;
}
