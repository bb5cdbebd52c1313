#include "strategies/data_parallel/flat_layout.h"

#include "core/tensor/allocator.h"

namespace lockstep {
namespace {

int64_t Aligned(int64_t elements, DType dtype) {
  return AlignedBytes(elements * SizeOf(dtype)) / SizeOf(dtype);
}

}  // namespace

FlatLayout LayOut(const std::vector<Parameter*>& parameters, int ranks, DType narrowest) {
  FlatLayout layout;
  int64_t total = 0;
  for (const Parameter* parameter : parameters) {
    layout.offsets.push_back(total);
    total += Aligned(parameter->held_shape().elements(), narrowest);
  }
  layout.shard = Aligned((total + ranks - 1) / ranks, narrowest);
  layout.whole = layout.shard * ranks;
  return layout;
}

}  // namespace lockstep
