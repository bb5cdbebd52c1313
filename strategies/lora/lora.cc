#include "strategies/lora/lora.h"

#include "strategies/single/single.h"

namespace lockstep {

StrategyDefinition LoraStrategy() {
  StrategyDefinition strategy = SingleStrategy();
  strategy.name = "lora";
  strategy.check = [](const Config&, const Settings& settings) {
    if (settings.lora) return absl::OkStatus();
    return absl::InvalidArgumentError(
        "the table [lora] is missing; its key layers says what to adapt, as in lora.layers = "
        "[\"*.attention\"]");
  };
  return strategy;
}

}  // namespace lockstep
