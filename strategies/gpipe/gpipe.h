#pragma once

#include "strategies/engine/preset.h"

namespace lockstep {

// Pipeline parallel: the model's blocks are cut into stages on the ranks of the pp axis, through
// which the micro-batches of a step flow one after another (Huang et al., "GPipe", NeurIPS 2019).
// pipeline.schedule says which stage works on what, and when: GPipe's own, or one of its
// successors. Transfers run while stages compute. The bits are those of `single` for every
// schedule.
inline StrategyDefinition GPipeStrategy() {
  return EnginePreset("gpipe", {.defaults = R"(
mesh = {pp = 2, dp = 2}
pipeline.schedule = "gpipe"
recompute.micro_batches = "except_last"
)",
                                .fixed = {NothingDivided()}});
}

}  // namespace lockstep
