#pragma once

#include "strategies/engine/preset.h"

namespace lockstep {

// Layer-wise model parallel: the model's blocks are divided over the ranks of the pp axis, in
// order, and a batch passes through them in turn, forward and back: one of these ranks works at a
// time, and each holds parameters, gradients and optimizer state of its own blocks only (Dean et
// al., "Large Scale Distributed Deep Networks", NIPS 2012). Micro-batches follow one another; a
// pipeline would overlap them.
inline StrategyDefinition LayerwiseStrategy() {
  return EnginePreset("layerwise",
                      {.defaults = "mesh = {pp = 2, dp = 2}",
                       .fixed = {{"pipeline.schedule", "\"layerwise\"", "gpipe, which has others"},
                                 {"pipeline.schedule_file", "\"\"", "gpipe"},
                                 {"pipeline.actions", "\"\"", "gpipe"},
                                 NothingDivided()}});
}

}  // namespace lockstep
