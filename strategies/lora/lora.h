#pragma once

#include <utility>

#include "strategies/engine/preset.h"
#include "strategies/recompute/policy.h"
#include "strategies/single/single.h"

namespace lockstep {

// One rank that recomputes nothing, as `single` never does. Whether the table [recompute] is right
// is the engine's to say.
inline bool IsSingle(const Config& config, const Settings& settings) {
  if (settings.mesh.ranks() != 1) return false;
  const absl::StatusOr<RecomputePolicy> policy = ReadRecomputePolicy(config);
  return policy.ok() && policy->micro_batches == Checkpointing::kNever && policy->blocks.empty() &&
         policy->operations.empty();
}

// Low-rank adaptation (Hu et al., "LoRA", 2021): any run with the table [lora], which this preset
// requires and every other one understands too; by default on one rank, where it is the program of
// `single` unless it recomputes. The model is frozen, its batch statistics included; adapters are
// trained on the layers that `layers` names (core/nn/lora.h), and are all that checkpoints hold.
inline StrategyDefinition LoraStrategy() {
  StrategyDefinition strategy = EnginePreset("lora", {});
  strategy.check = [engine = strategy.check](const Config& config, const Settings& settings) {
    if (!settings.lora) {
      return absl::InvalidArgumentError(
          "the table [lora] is missing; its key layers says what to adapt, as in lora.layers = "
          "[\"*.attention\"]");
    }
    return IsSingle(config, settings) ? absl::OkStatus() : engine(config, settings);
  };
  strategy.check_model = [engine = strategy.check_model](
                             const Config& config, const Settings& settings, const Model& model) {
    return IsSingle(config, settings) ? absl::OkStatus() : engine(config, settings, model);
  };
  strategy.needs_profiles = [engine = strategy.needs_profiles](const Config& config,
                                                               const Settings& settings) {
    return !IsSingle(config, settings) && engine(config, settings);
  };
  strategy.make = [engine = strategy.make](StrategyInputs inputs) {
    return IsSingle(inputs.config, inputs.settings) ? SingleStrategy().make(std::move(inputs))
                                                    : engine(std::move(inputs));
  };
  return strategy;
}

}  // namespace lockstep
