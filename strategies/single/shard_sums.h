#pragma once

#include <cstdint>
#include <vector>

#include "core/base/sum_tree.h"
#include "core/kernels/kernels.h"
#include "core/tensor/memory.h"
#include "core/tensor/tensor.h"

namespace lockstep {

// Sums of tensors over the shards of a batch that one rank works through, along the tree over
// shards (core/base/sum_tree.h). Each node of the tree is rounded to its tensor's dtype, as
// communicators round where the shards are other ranks'.
//
//   ShardSums sums(kernels, gradients, shards, MemoryClass::kGradients);
//   for (each shard, in order) {
//     // fill `gradients` with those of the shard
//     sums.AddShard();
//   }
//   // `gradients` hold the sums over all shards
class ShardSums {
 public:
  // `tensors` hold the values of one shard at a time. `memory_class` is that of the partial sums.
  ShardSums(Kernels& kernels, std::vector<Tensor> tensors, int64_t shards,
            MemoryClass memory_class);

  // Bytes of the partial sums: at most log2(shards), rounded up, of each tensor.
  int64_t bytes() const;

  // Adds what `tensors` hold as the next shard's values. After the last shard they hold the sums,
  // and the next call begins anew.
  void AddShard();

 private:
  Kernels& kernels_;
  std::vector<Tensor> tensors_;
  int64_t shards_;
  TreeStack stack_;
  std::vector<std::vector<Tensor>> partial_;  // [node on the stack][tensor]
};

}  // namespace lockstep
