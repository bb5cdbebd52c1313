#include "strategies/data_parallel/flat_gradients.h"

#include "core/base/status.h"

namespace lockstep {

FlatGradients::FlatGradients(const FlatLayout& layout, const ShardGroups& groups, DType reduce,
                             Kernels& kernels)
    : groups_(groups) {
  whole_ = kernels.Empty({layout.whole}, reduce, MemoryClass::kGradients);
  if (stays_whole()) {
    shard_ = whole_.View(groups.shards.rank() * layout.shard, {layout.shard});
  } else {
    whole_.storage().Release();
    shard_ = kernels.Empty({layout.shard}, reduce, MemoryClass::kGradients);
  }
}

void FlatGradients::Materialize() {
  if (!stays_whole()) whole_.storage().Materialize();
}

void FlatGradients::Reduce() {
  reduce_ = groups_.shards.ReduceScatter(whole_, shard_, ReduceOp::kSum, "gradients");
}

void FlatGradients::AwaitReduced() {
  ThrowIfError(reduce_.Wait());
  if (!stays_whole()) whole_.storage().Release();
}

Work FlatGradients::ReduceOverReplicas() {
  if (groups_.replicas.size() == 1) return Work();
  return groups_.replicas.AllReduce(shard_, shard_, ReduceOp::kSum, "gradients");
}

}  // namespace lockstep
