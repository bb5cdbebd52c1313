#include "strategies/single/shard_sums.h"

#include <cstddef>
#include <utility>

namespace lockstep {

ShardSums::ShardSums(Kernels& kernels, std::vector<Tensor> tensors, int64_t shards,
                     MemoryClass memory_class)
    : kernels_(kernels), tensors_(std::move(tensors)), shards_(shards), stack_(shards) {
  // What the last shard completes needs no place of its own.
  partial_.resize(static_cast<size_t>(DeepestStack(shards, 0, shards - 1)));
  for (std::vector<Tensor>& node : partial_) {
    for (const Tensor& tensor : tensors_) {
      node.push_back(kernels.Empty(tensor.shape(), tensor.dtype(), memory_class));
    }
  }
}

int64_t ShardSums::bytes() const {
  int64_t sum = 0;
  for (const std::vector<Tensor>& node : partial_) {
    for (const Tensor& tensor : node) sum += tensor.bytes();
  }
  return sum;
}

void ShardSums::AddShard() {
  const size_t before = stack_.nodes().size();
  const auto merged = static_cast<size_t>(stack_.Push());
  const bool is_complete = stack_.nodes().back().count == shards_;
  for (size_t i = 0; i < tensors_.size(); ++i) {
    const Tensor& tensor = tensors_[i];
    if (merged == 0 && !is_complete) kernels_.Copy(tensor, partial_[before][i]);
    for (size_t merge = 1; merge <= merged; ++merge) {
      // The sum goes on with the next node, or takes the place of this one.
      const Tensor& node = partial_[before - merge][i];
      const bool stays = merge == merged && !is_complete;
      kernels_.Add(node, tensor, stays ? node : tensor);
    }
  }
  if (is_complete) stack_ = TreeStack(shards_);
}

}  // namespace lockstep
