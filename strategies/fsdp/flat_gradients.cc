#include "strategies/fsdp/flat_gradients.h"

#include "core/base/status.h"

namespace lockstep {

FlatGradients::FlatGradients(const FlatLayout& layout, const ShardGroups& groups, DType reduce,
                             Kernels& kernels)
    : kernels_(kernels), groups_(groups) {
  shard_ = kernels.Empty({layout.shard}, reduce, MemoryClass::kGradients);
  whole_ = kernels.Empty({layout.whole}, reduce, MemoryClass::kGradients);
  whole_.storage().Release();
}

void FlatGradients::Materialize() { whole_.storage().Materialize(); }

void FlatGradients::Reduce(Write write) {
  if (write == Write::kAccumulate) {
    addend_ = kernels_.Empty(shard_.shape(), shard_.dtype(), MemoryClass::kGradients);
  }
  const Tensor& sum = addend_.defined() ? addend_ : shard_;
  reduce_ = groups_.shards.ReduceScatter(whole_, sum, ReduceOp::kSum, "gradients");
}

void FlatGradients::AwaitReduced() {
  ThrowIfError(reduce_.Wait());
  whole_.storage().Release();
  if (!addend_.defined()) return;
  kernels_.Add(shard_, addend_, shard_);
  addend_ = Tensor();
}

Work FlatGradients::ReduceOverReplicas() {
  if (groups_.replicas.size() == 1) return Work();
  return groups_.replicas.AllReduce(shard_, shard_, ReduceOp::kSum, "gradients");
}

}  // namespace lockstep
