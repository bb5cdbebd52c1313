#include "strategies/fsdp/flat_layout.h"

#include "core/tensor/allocator.h"

namespace lockstep {
namespace {

int64_t AlignedFloats(int64_t floats) { return AlignedBytes(floats * 4) / 4; }

}  // namespace

FlatLayout LayOut(const std::vector<Parameter*>& parameters, int ranks) {
  FlatLayout layout;
  int64_t total = 0;
  for (const Parameter* parameter : parameters) {
    layout.offsets.push_back(total);
    total += AlignedFloats(parameter->shape.elements());
  }
  layout.shard = AlignedFloats((total + ranks - 1) / ranks);
  layout.whole = layout.shard * ranks;
  return layout;
}

}  // namespace lockstep
