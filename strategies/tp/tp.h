#pragma once

#include "strategies/engine/preset.h"

namespace lockstep {

// Tensor parallel (Shoeybi et al., "Megatron-LM", 2019), alone or within data parallel: the ranks
// along tp compute each layer of the model's plan together, on the same micro-batches, each with
// its slice of the weights; the ranks along dp train a shard of the batch each and sum the
// gradients of their slices as ddp does. A block of a transformer sums its activations over tp
// twice in forward and their gradients twice in backward; the logits stay split up to the loss.
//
// With [cut] features stated, its bits are those of single with the same cut (docs/numerics.md). By
// default the leaves are as many as the ranks: then losses are those of single but for the order of
// sums inside the split products.
inline StrategyDefinition TpStrategy() {
  return EnginePreset("tp",
                      {.defaults = "mesh = {dp = 2, tp = 2}",
                       .fixed = {OneStage("layerwise, gpipe or fsdp_pipe"), NothingDivided()}});
}

}  // namespace lockstep
