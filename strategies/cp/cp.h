#pragma once

#include "strategies/engine/preset.h"

namespace lockstep {

// Context parallel, alone or within data parallel: the ranks along cp divide the tokens of each
// sequence, and with them all activations, so that sequences may be as many times longer. Each has
// a zig-zag share of every sample: of 2 n chunks rank i has chunks i and 2 n - 1 - i, which under
// a causal mask is equal work (docs/numerics.md, "Token leaves"). Attention alone needs other
// ranks' tokens: by default it gathers their keys and values (Llama 3, "The Llama 3 Herd of
// Models", 2024, section 3.3.2); context_parallel.attention names others. All ranks hold all
// parameters; gradients are summed over dp and cp together, as ddp does over dp.
//
// With [cut] tokens stated, its bits are those of single with the same cut (docs/numerics.md). By
// default the leaves are as many as the ranks that divide them.
inline StrategyDefinition CpStrategy() {
  return EnginePreset("cp",
                      {.defaults = "mesh = {dp = 2, cp = 2}",
                       .fixed = {OneStage("layerwise, gpipe or fsdp_pipe"), NothingDivided()}});
}

}  // namespace lockstep
