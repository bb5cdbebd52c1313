#pragma once

#include "core/run/strategy.h"

namespace lockstep {

// Low-rank adaptation on one rank (Hu et al., "LoRA", 2021): `single` with the table [lora], which
// it requires, and which every other strategy understands too. The model is frozen, its batch
// statistics included; adapters are trained on the layers that `layers` names (core/nn/lora.h), and
// are all that checkpoints hold.
//
// Keys: layers (patterns), rank (8), alpha (rank), dropout (0), rank_stabilised (false); and
// learning_rate and weight_decay, in place of those of [schedule] and [optimizer]. In a later layer
// of a configuration, `lora = false` takes the table back.
StrategyDefinition LoraStrategy();

}  // namespace lockstep
