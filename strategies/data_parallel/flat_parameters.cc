#include "strategies/data_parallel/flat_parameters.h"

#include "core/base/status.h"
#include "glog/logging.h"

namespace lockstep {

FlatParameters::FlatParameters(const FlatLayout& layout, const ShardGroups& groups, DType compute,
                               Kernels& kernels, bool is_trained)
    : kernels_(kernels), groups_(groups) {
  whole_ = kernels.Empty({layout.whole}, compute, MemoryClass::kParameters);
  if (stays_whole()) {
    shard_ = whole_.View(groups.shards.rank() * layout.shard, {layout.shard});
    kernels.Fill(whole_, 0);
  } else {
    whole_.storage().Release();
    shard_ = kernels.Empty({layout.shard}, compute, MemoryClass::kParameters);
    kernels.Fill(shard_, 0);
  }
  if (is_trained) {
    master_ = shard_;
    if (compute != DType::kF32) {
      master_ = kernels.Empty({layout.shard}, DType::kF32, MemoryClass::kOptimizerState);
      kernels.Fill(master_, 0);
    }
  }
  const int neighbours = groups.neighbours.size();
  if (neighbours > 1 && neighbours < groups.shards.size()) {
    resting_shard_ = kernels.Empty({layout.whole / neighbours}, compute, MemoryClass::kParameters);
    resting_shard_.storage().Release();
  }
}

void FlatParameters::RoundMaster() {
  if (has_master()) kernels_.Cast(master_, shard_);
}

void FlatParameters::Gather() {
  if (!whole_.storage().released()) return;
  whole_.storage().Materialize();
  gather_ = rests() ? groups_.neighbours.AllGather(resting_shard_, whole_, "parameters")
                    : groups_.shards.AllGather(shard_, whole_, "parameters");
}

void FlatParameters::GatherUpdates() {
  CHECK(stays_whole());
  gather_ = groups_.shards.AllGather(shard_, whole_, "parameters");
}

void FlatParameters::AwaitWhole() {
  Gather();
  ThrowIfError(gather_.Wait());
  if (rests()) resting_shard_.storage().Release();
}

void FlatParameters::Rest() {
  if (stays_whole() || groups_.neighbours.size() == 1) return;
  if (resting_shard_.defined()) {
    resting_shard_.storage().Materialize();
    kernels_.Copy(
        whole_.View(groups_.neighbours.rank() * resting_shard_.elements(), resting_shard_.shape()),
        resting_shard_);
  }
  whole_.storage().Release();
}

void FlatParameters::Release() {
  if (stays_whole()) return;
  whole_.storage().Release();
  if (rests()) resting_shard_.storage().Release();
}

int64_t FlatParameters::resting_bytes() const {
  if (groups_.neighbours.size() == 1) return whole_.bytes();
  return resting_shard_.defined() ? resting_shard_.bytes() : 0;
}

}  // namespace lockstep
