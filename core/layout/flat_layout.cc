#include "core/layout/flat_layout.h"

#include <algorithm>

#include "core/tensor/allocator.h"

namespace lockstep {
namespace {

int64_t Aligned(int64_t elements, DType dtype) {
  return AlignedBytes(elements * SizeOf(dtype)) / SizeOf(dtype);
}

}  // namespace

// Both ends of a shard lie on the boundary, but not the end of a member.
Range FlatLayout::InShard(size_t member, int64_t shard_index) const {
  const auto [offset, elements] = members[member];
  const int64_t begin = shard_index * shard - offset;
  const int64_t first = std::clamp<int64_t>(begin, 0, elements);
  return {.first = first, .count = std::clamp<int64_t>(begin + shard, 0, elements) - first};
}

int64_t FlatLayout::OffsetInShard(size_t member, int64_t shard_index) const {
  const Range range = InShard(member, shard_index);
  return range.count == 0 ? 0 : members[member].offset + range.first - shard_index * shard;
}

FlatLayout LayOut(const std::vector<TensorSplit>& tensors, int shards, DType narrowest) {
  FlatLayout layout;
  int64_t total = 0;
  for (const TensorSplit& tensor : tensors) {
    layout.members.push_back({.offset = total, .elements = tensor.elements});
    total += Aligned(tensor.held(), narrowest);
  }
  layout.shard = Aligned((total + shards - 1) / shards, narrowest);
  layout.whole = layout.shard * shards;
  return layout;
}

}  // namespace lockstep
