#pragma once

#include "core/comm/work.h"
#include "core/kernels/kernels.h"
#include "core/layout/flat_layout.h"
#include "strategies/data_parallel/shard_groups.h"

namespace lockstep {

// The values of a unit's parameters: this rank's shard, and the whole, always or while a block
// needs it.
class FlatParameters {
 public:
  // Whether they are trained here, get their values from where they are, or are frozen.
  enum class Trained { kHere, kElsewhere, kNever };

  // `compute`: the dtype of the whole, in which it is gathered and computed with. Where parameters
  // are not divided the whole stays, and the shard lies in it.
  FlatParameters(const FlatLayout& layout, const ShardGroups& groups, DType compute,
                 Kernels& kernels, Trained trained = Trained::kHere);

  // Begins to bring the whole together, from the neighbours where they have kept it, else from all
  // shards; without effect if that has been done or begun.
  void Gather();
  // Begins to bring the shards of all ranks into a whole that stays, after their values have
  // changed. AwaitWhole ends it.
  void GatherUpdates();
  // Returns when the whole is there.
  void AwaitWhole();
  // After forward, until the next Gather: keeps this rank's shard of what the neighbours keep.
  void Rest();
  // Keeps the shard only.
  void Release();

  // What the optimizer updates, in fp32; starts as zeros, for who gives it its values. The shard is
  // the same tensor, or where less is computed with a rounded copy. Undefined where nobody trains
  // here.
  const Tensor& master() const { return master_; }
  const Tensor& shard() const { return shard_; }
  bool has_master() const { return master_.defined() && shard_.dtype() != DType::kF32; }
  // After the master has changed by other means than the optimizer.
  void RoundMaster();

  // Its memory comes and goes; views of it stay valid as handles.
  const Tensor& whole() const { return whole_; }
  // Bytes that Rest keeps beside the shard.
  int64_t resting_bytes() const;

 private:
  bool stays_whole() const { return groups_.divided != Divided::kParameters; }
  bool rests() const { return resting_shard_.defined() && !resting_shard_.storage().released(); }

  Kernels& kernels_;
  ShardGroups groups_;
  Tensor master_, shard_, whole_;
  Tensor resting_shard_;  // undefined where it is the shard, or the whole
  Work gather_;
};

}  // namespace lockstep
