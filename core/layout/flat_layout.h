#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "core/tensor/dtype.h"
#include "core/tensor/slice.h"

namespace lockstep {

// What a rank along tp holds of a tensor, while nothing else divides it.
struct TensorSplit {
  std::optional<Slice> slice = {};  // none: the whole tensor
  int64_t elements = 0;             // of the slice
  int64_t padding = 0;              // elements behind the slice, which belong to no tensor

  int64_t held() const { return elements + padding; }
};

// Where tensors lie in a flat buffer, one behind the other on 64-byte boundaries, and how the
// buffer is divided into shards of equal size, which begin on these boundaries too. What is left
// over at the end fills the last shards up. All numbers are in elements.
struct FlatLayout {
  struct Member {
    int64_t offset = 0;    // in the buffer
    int64_t elements = 0;  // without padding
  };
  std::vector<Member> members;
  int64_t shard = 0;
  int64_t whole = 0;  // all shards

  // The elements of a member that lie in a shard, counted in the member; there may be none.
  Range InShard(size_t member, int64_t shard_index) const;
  // Where these elements begin, counted in the shard; 0 where there are none.
  int64_t OffsetInShard(size_t member, int64_t shard_index) const;
};

// Lays the tensors out, with their padding. The boundaries hold for elements of `narrowest`, the
// smallest dtype that is laid out so.
FlatLayout LayOut(const std::vector<TensorSplit>& tensors, int shards, DType narrowest);

}  // namespace lockstep
