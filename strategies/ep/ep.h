#pragma once

#include "strategies/engine/preset.h"

namespace lockstep {

// Expert parallel within data parallel (Lepikhin et al., "GShard", 2020): the ranks along ep, which
// are runs of those along dp and cp, divide the experts of each layer among them. A token's row
// goes to the ranks of its experts by an all-to-all, and what these make of it comes back by
// another. All else is as ddp has it: each rank has its own shards of the batch, and a copy of all
// other parameters. Gradients of experts are summed over the ranks that have the same experts only:
// their ranks have met the tokens of the others.
//
// Its bits are those of single, the choice of experts included (docs/numerics.md, "Experts").
inline StrategyDefinition EpStrategy() {
  return EnginePreset("ep",
                      {.defaults = "mesh = {dp = 4, ep = 2}",
                       .fixed = {OneStage("layerwise, gpipe or fsdp_pipe"), NothingDivided()}});
}

}  // namespace lockstep
