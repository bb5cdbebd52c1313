#pragma once

#include <cstdint>
#include <functional>

#include "core/comm/work.h"
#include "strategies/context_parallel/context_ranks.h"

namespace lockstep {

// Keys and values go around a ring of the ranks, from each rank to the next one, while each rank
// attends to those that it has (Liu et al., "Ring Attention with Blockwise Transformers for
// Near-Infinite Context", 2023). No rank ever has more than those of two ranks: what it computes
// with, and what is on its way. Partial results are merged along the trees over the ranks as soon
// as both halves are there.
//
// In backward keys and values go around once more. Each rank keeps what its queries add to the
// gradients of every rank's keys and values, and all ranks reduce and scatter these parts once: a
// sum on the way around the ring would have the order of the ring, another one for each rank.
class RingAttention : public ContextRanks {
 public:
  // Connects the ring, together with the other members.
  explicit RingAttention(Communicator& ranks);

  Variable Attend(Pass& pass, const Variable& qkv, const Attention& attention) override;

 private:
  // Calls run(rank, keys) for each rank's keys and values, [own leaves * samples, leaf time, 2 *
  // width of all keys], in the order in which they come: this rank's, then those of the rank before
  // it, and so on around the ring.
  void ForKeys(Kernels& kernels, const Tensor& qkv, int64_t query_width,
               const std::function<void(int rank, const Tensor& keys)>& run);
};

}  // namespace lockstep
