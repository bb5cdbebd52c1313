#pragma once

#include "strategies/engine/preset.h"
#include "strategies/single/single.h"

namespace lockstep {

inline bool HasOneRank(const Settings& settings) { return settings.mesh.ranks() == 1; }

// Low-rank adaptation (Hu et al., "LoRA", 2021): any run with the table [lora], which this preset
// requires and every other one understands too; by default on one rank, where it is the program of
// `single`. The model is frozen, its batch statistics included; adapters are trained on the layers
// that `layers` names (core/nn/lora.h), and are all that checkpoints hold.
inline StrategyDefinition LoraStrategy() {
  StrategyDefinition strategy = EnginePreset("lora", {});
  strategy.check = [engine = strategy.check](const Config& config, const Settings& settings) {
    if (!settings.lora) {
      return absl::InvalidArgumentError(
          "the table [lora] is missing; its key layers says what to adapt, as in lora.layers = "
          "[\"*.attention\"]");
    }
    return HasOneRank(settings) ? absl::OkStatus() : engine(config, settings);
  };
  strategy.check_model = [engine = strategy.check_model](
                             const Config& config, const Settings& settings, const Model& model) {
    return HasOneRank(settings) ? absl::OkStatus() : engine(config, settings, model);
  };
  strategy.make = [engine = strategy.make](StrategyInputs inputs) {
    return HasOneRank(inputs.settings) ? SingleStrategy().make(std::move(inputs))
                                       : engine(std::move(inputs));
  };
  return strategy;
}

}  // namespace lockstep
