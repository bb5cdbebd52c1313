#include "core/data/dataset.h"

#include <vector>

namespace lockstep {
namespace {

Shape WithBatch(int64_t samples, const Shape& shape) {
  std::vector<int64_t> dims = {samples};
  dims.insert(dims.end(), shape.dims().begin(), shape.dims().end());
  return Shape(absl::MakeConstSpan(dims));
}

}  // namespace

Batch EmptyBatch(const Dataset& dataset, int64_t samples, Allocator& allocator,
                 MemoryClass memory_class) {
  Batch batch = {.inputs = Tensor::Empty(allocator, WithBatch(samples, dataset.input_shape()),
                                         dataset.input_dtype(), memory_class),
                 .targets = Tensor::Empty(allocator, WithBatch(samples, dataset.target_shape()),
                                          DType::kI32, memory_class)};
  if (dataset.packs_documents()) {
    batch.documents = Tensor::Empty(allocator, batch.inputs.shape(), DType::kI32, memory_class);
  }
  return batch;
}

}  // namespace lockstep
