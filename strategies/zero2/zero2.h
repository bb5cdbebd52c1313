#pragma once

#include "strategies/engine/preset.h"

namespace lockstep {

// ZeRO stage 2 (Rajbhandari et al., "ZeRO", SC 2020): `zero1`, with the gradients divided too. With
// one micro-batch, a block's gradients are given back as soon as they have been reduce-scattered.
inline StrategyDefinition Zero2Strategy() {
  return EnginePreset("zero2", {.defaults = "mesh.dp = 2", .fixed = {Divides("gradients")}});
}

}  // namespace lockstep
