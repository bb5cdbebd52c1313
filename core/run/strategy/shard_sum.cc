#include "core/run/strategy/shard_sum.h"

#include <cstddef>
#include <utility>

#include "core/tensor/allocator.h"

namespace lockstep {

ShardSum::ShardSum(Kernels& kernels, Tensor tensor, int64_t shards, MemoryClass memory_class)
    : kernels_(kernels), tensor_(std::move(tensor)), shards_(shards), stack_(shards) {
  // What the last shard completes needs no place of its own.
  const auto partial = static_cast<size_t>(DeepestStack(shards, 0, shards - 1));
  while (partial_.size() < partial) {
    partial_.push_back(kernels.Empty(tensor_.shape(), tensor_.dtype(), memory_class));
  }
}

int64_t ShardSum::bytes() const {
  int64_t sum = 0;
  for (const Tensor& node : partial_) sum += AlignedBytes(node.bytes());
  return sum;
}

bool ShardSum::Add() {
  const size_t before = stack_.nodes().size();
  const auto merged = static_cast<size_t>(stack_.Push());
  const bool is_complete = stack_.nodes().back().count == shards_;
  if (merged == 0 && !is_complete) kernels_.Copy(tensor_, partial_[before]);
  for (size_t merge = 1; merge <= merged; ++merge) {
    // The sum goes on with the next node, or takes the place of this one.
    const Tensor& node = partial_[before - merge];
    const bool stays = merge == merged && !is_complete;
    kernels_.Add(node, tensor_, stays ? node : tensor_);
  }
  if (is_complete) stack_ = TreeStack(shards_);
  return is_complete;
}

}  // namespace lockstep
