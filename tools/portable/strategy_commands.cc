#include "core/run/main.h"
#include "models/models.h"
#include "strategies/ddp/ddp.h"
#include "strategies/fsdp/fsdp.h"
#include "strategies/fsdp_pipe/fsdp_pipe.h"
#include "strategies/gpipe/gpipe.h"
#include "strategies/layerwise/layerwise.h"
#include "strategies/lora/lora.h"
#include "strategies/single/single.h"
#include "strategies/tp/tp.h"
#include "strategies/zero1/zero1.h"
#include "strategies/zero2/zero2.h"
#include "tools/portable/commands.h"

namespace lockstep {

std::vector<Command> StrategyCommands() {
  std::vector<Command> commands;
  for (const StrategyDefinition& strategy :
       {SingleStrategy(), DdpStrategy(), Zero1Strategy(), Zero2Strategy(), LayerwiseStrategy(),
        TpStrategy(), FsdpStrategy(), GPipeStrategy(), FsdpPipeStrategy(), LoraStrategy()}) {
    commands.push_back({strategy.name, [strategy](int argc, char** argv) {
                          return TrainMain(argc, argv, strategy, MakeModel);
                        }});
  }
  return commands;
}

}  // namespace lockstep
