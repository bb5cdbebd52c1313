#include "strategies/data_parallel/flat_gradients.h"

#include "core/base/status.h"

namespace lockstep {

FlatGradients::FlatGradients(const FlatLayout& layout, const ShardGroups& groups, DType reduce,
                             Kernels& kernels)
    : groups_(groups) {
  shard_ = kernels.Empty({layout.shard}, reduce, MemoryClass::kGradients);
  whole_ = kernels.Empty({layout.whole}, reduce, MemoryClass::kGradients);
  whole_.storage().Release();
}

void FlatGradients::Materialize() { whole_.storage().Materialize(); }

void FlatGradients::Reduce() {
  reduce_ = groups_.shards.ReduceScatter(whole_, shard_, ReduceOp::kSum, "gradients");
}

void FlatGradients::AwaitReduced() {
  ThrowIfError(reduce_.Wait());
  whole_.storage().Release();
}

Work FlatGradients::ReduceOverReplicas() {
  if (groups_.replicas.size() == 1) return Work();
  return groups_.replicas.AllReduce(shard_, shard_, ReduceOp::kSum, "gradients");
}

}  // namespace lockstep
