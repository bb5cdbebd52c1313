#pragma once

#include <cstdint>

#include "strategies/context_parallel/context_ranks.h"

namespace lockstep {

// Each rank attends with some of the heads, to the tokens of all ranks (Jacobs et al., "DeepSpeed
// Ulysses", 2023): an all-to-all brings the projections of its heads together, and another one
// takes their outputs back to the ranks of the tokens. Heads of queries and of keys must divide
// among the ranks.
class UlyssesAttention : public ContextRanks {
 public:
  using ContextRanks::ContextRanks;

  Variable Attend(Pass& pass, const Variable& qkv, const Attention& attention) override;

 private:
  // Which columns of a row are heads of queries, and which of keys and of values.
  struct Columns {
    int64_t queries = 0, keys = 0;  // width of all queries, and of all keys or all values
  };

  // From own tokens and all heads, [own leaves * samples, leaf time, width], to all tokens and own
  // heads, [leaves * samples, leaf time, width / ranks], and back.
  Tensor ToHeads(Kernels& kernels, const Tensor& x, const Columns& columns, const char* label);
  Tensor ToTokens(Kernels& kernels, const Tensor& x, const Columns& columns, const char* label);
  // The same as steps of the tape: gradients go the other way.
  Variable ToHeads(Pass& pass, const Variable& x, const Columns& columns);
  Variable ToTokens(Pass& pass, const Variable& x, const Columns& columns);
};

}  // namespace lockstep
