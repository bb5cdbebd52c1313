#pragma once

#include <cstdint>
#include <vector>

#include "core/base/sum_tree.h"
#include "core/kernels/kernels.h"
#include "core/tensor/memory.h"
#include "core/tensor/tensor.h"

namespace lockstep {

// The sum of a tensor over shards of a batch that one rank works through, along the tree over
// shards (core/base/sum_tree.h). Each node of the tree is rounded to the tensor's dtype, as
// communicators round where the shards are other ranks'.
//
//   ShardSum sum(kernels, gradient, shards, MemoryClass::kGradients);
//   for (each shard, in order) {
//     // fill `gradient` with that of the shard
//     sum.Add();
//   }
//   // `gradient` holds the sum over all shards
class ShardSum {
 public:
  // `tensor` holds the values of one shard at a time. `memory_class` is that of the partial sums.
  ShardSum(Kernels& kernels, Tensor tensor, int64_t shards, MemoryClass memory_class);

  // Bytes of the partial sums: at most log2(shards), rounded up, of the tensor.
  int64_t bytes() const;

  // Adds what the tensor holds as the next shard's values. Returns whether this was the last shard:
  // then the tensor holds the sum, and the next call begins anew.
  bool Add();

 private:
  Kernels& kernels_;
  Tensor tensor_;
  int64_t shards_;
  TreeStack stack_;
  std::vector<Tensor> partial_;  // by node on the stack
};

}  // namespace lockstep
