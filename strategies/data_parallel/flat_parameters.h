#pragma once

#include "core/comm/communicator.h"
#include "core/kernels/kernels.h"
#include "core/layout/flat_layout.h"
#include "core/layout/model_layout.h"

namespace lockstep {

// What a rank divides with others, and with whom.
struct ShardGroups {
  // Ranks among which every unit is divided: each always keeps one shard.
  Communicator& shards;
  // Ranks of `shards`, next to this one, that keep a unit together between its forward and its
  // backward, each an equal shard: all ranks of `shards` (each then keeps its usual shard), some of
  // them, or this rank alone, which keeps the whole unit.
  Communicator& neighbours;
  // Ranks that keep the same shard, and train it on other shards of the batch.
  Communicator& replicas;
  Divided divided = Divided::kParameters;
  // Whether this rank's gradients count in the sums over `shards`. Those of other ranks along cp
  // may be the same ones.
  bool contributes = true;
};

// The values of a unit's parameters: this rank's shard, and the whole, always or while a block
// needs it.
class FlatParameters {
 public:
  // `compute`: the dtype of the whole, in which it is gathered and computed with. Where parameters
  // are not divided the whole stays, and the shard lies in it. `is_trained`: here, so that they
  // have a master.
  FlatParameters(const FlatLayout& layout, const ShardGroups& groups, DType compute,
                 Kernels& kernels, bool is_trained);

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
  // The ranks that divide the whole.
  const ShardGroups& groups() const { return groups_; }
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
