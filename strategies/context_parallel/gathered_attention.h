#pragma once

#include "strategies/context_parallel/context_ranks.h"

namespace lockstep {

// Each rank gathers the keys and values of all ranks, in forward and once more in backward, and
// attends to them with its own queries (Llama 3, "The Llama 3 Herd of Models", 2024, section
// 3.3.2). The gradients of keys and values, which every rank has a part of, are reduced and
// scattered along the trees over query leaves.
class GatheredAttention : public ContextRanks {
 public:
  using ContextRanks::ContextRanks;

  Variable Attend(Pass& pass, const Variable& qkv, const Attention& attention) override;

 private:
  // Keys and values of all ranks, [leaves * samples, leaf time, 2 * width of all keys].
  Tensor Gather(Kernels& kernels, const Tensor& qkv, const Attention& attention);
};

}  // namespace lockstep
