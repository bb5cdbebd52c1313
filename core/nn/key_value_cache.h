#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "core/autograd/variable.h"
#include "core/kernels/kernels.h"
#include "core/kernels/options.h"
#include "core/nn/pass.h"

namespace lockstep {

// The keys and values of one sequence in all attention layers of a model, so that a pass over
// further tokens computes with these tokens alone. Grouped-query heads keep their keys once a
// group.
//
//   KeyValueCache cache(kernels, context);
//   Pass pass = cache.Begin(tape, prompt.size());  // then 1, 1, ...
//   for (const auto& block : model.blocks) values = block->Run(pass, std::move(values));
//
// A token's logits have the bits of a pass over the whole sequence, on the CPU.
class KeyValueCache {
 public:
  // For sequences of at most `capacity` tokens. The kernels outlive it.
  KeyValueCache(Kernels& kernels, int64_t capacity) : kernels_(kernels), capacity_(capacity) {}

  // Number of tokens whose keys and values are kept.
  int64_t tokens() const { return tokens_; }
  // Makes the next pass begin a new sequence.
  void Clear() { tokens_ = 0; }

  // An evaluation pass over the `count` tokens that follow those kept: inputs i32 [1, count]. Run
  // all blocks once with it. Requires room for the tokens, and a tape that does not record.
  Pass Begin(Tape& tape, int64_t count);

  // For layers: keeps the keys and values of qkv [1, count, packed_width] and attends to them and
  // all before: [1, count, query_width]. Layers are told apart by the order of their calls, which
  // is the same in each pass. Throws StatusException when there is no memory.
  Variable Attend(const Pass& pass, const Variable& qkv, const Attention& attention);

 private:
  Kernels& kernels_;
  int64_t capacity_;
  int64_t tokens_ = 0;          // those of the pass that has begun included
  size_t next_layer_ = 0;       // of the pass
  std::vector<Tensor> layers_;  // [capacity, 2 * key_width]: keys, then values
};

}  // namespace lockstep
