#pragma once

#include <cstdint>
#include <memory>

#include "core/comm/signature.h"
#include "core/tensor/allocator.h"
#include "core/tensor/tensor.h"

namespace lockstep {

// Returns the bytes that a backend holds beside the tensors of a call, for one member of a group of
// `size`; `in_place`: the input is the output. It depends on nothing else, so that a rehearsal can
// book what a run of that backend will hold.
using HeldBytes = int64_t (*)(const Signature& signature, int size, bool in_place);

// What one member of a group holds beside the tensors of its collectives, booked as communication.
// The collectives of a group move one after the other, so all in flight can use the same block.
// Blocks come when calls are made and go when they are waited for, both on the rank's thread: what
// the books say does not depend on when data moves.
class HeldMemory {
 public:
  // Returns at least `bytes` for a call, which keeps them until it has been waited for; null for
  // 0. Returns the newest block that a call in flight keeps where it is large enough, else a new
  // one from `allocator`. Throws StatusException where there is no room.
  std::shared_ptr<const Tensor> Hold(int64_t bytes, Allocator& allocator) {
    if (bytes == 0) return nullptr;
    std::shared_ptr<const Tensor> block = newest_.lock();
    if (block == nullptr || block->bytes() < bytes) {
      block = std::make_shared<const Tensor>(
          Tensor::Empty(allocator, {bytes}, DType::kU8, MemoryClass::kCommunication));
      newest_ = block;
    }
    return block;
  }

 private:
  std::weak_ptr<const Tensor> newest_;
};

}  // namespace lockstep
