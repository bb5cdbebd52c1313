#pragma once

#include "core/comm/work.h"
#include "core/kernels/kernels.h"
#include "core/layout/flat_layout.h"
#include "strategies/data_parallel/shard_groups.h"

namespace lockstep {

// The gradients of a unit's parameters: the whole, always or while backward computes them, and this
// rank's shard of their sum over the ranks.
class FlatGradients {
 public:
  // `reduce`: the dtype in which they are kept and summed over the ranks. Where gradients are not
  // divided the whole stays, and the shard lies in it.
  FlatGradients(const FlatLayout& layout, const ShardGroups& groups, DType reduce,
                Kernels& kernels);

  // Gives the whole memory, if it has none.
  void Materialize();
  // Begins to sum the whole over the ranks: the shard becomes this rank's shard of the sum.
  void Reduce();
  // Returns when that is done, and gives the memory of the whole back unless it stays.
  void AwaitReduced();
  // Begins to sum the shard over the replicas; nothing where there are none.
  Work ReduceOverReplicas();

  const Tensor& shard() const { return shard_; }
  // Its memory comes and goes; views of it stay valid as handles.
  const Tensor& whole() const { return whole_; }

 private:
  bool stays_whole() const { return groups_.divided == Divided::kOptimizerState; }

  ShardGroups groups_;
  Tensor shard_, whole_;
  Work reduce_;
};

}  // namespace lockstep
