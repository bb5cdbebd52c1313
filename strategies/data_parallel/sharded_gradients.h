#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <unordered_map>
#include <vector>

#include "core/comm/work.h"
#include "core/layout/model_layout.h"
#include "core/nn/model.h"
#include "core/run/strategy/shard_sum.h"
#include "strategies/data_parallel/data_parallel.h"
#include "strategies/data_parallel/flat_parameters.h"

namespace lockstep {

// The gradients of a model's uses where ranks divide them, or the optimizer state only: each
// block's in a flat buffer, of whose sum over the ranks this rank keeps a shard. The use of a tied
// parameter has a buffer by itself, laid out as its owner's.
//
// Divided gradients are whole from the block's first backward of a shard to their sum over the
// ranks, which goes on while backward does; each shard's sum is then added to those before it.
// Otherwise the whole stays, is summed over the rank's shards, and over the ranks once.
class ShardedGradients {
 public:
  // The most reduce-scatters under way at a time, each of which keeps its whole gradients: the next
  // one may begin before the one before has ended.
  static constexpr size_t kUnderWay = 2;

  // What the local model, which may be made later, does with gradients.
  struct Hooks {
    std::function<bool(Parameter&)> end_shard;                       // LocalModel::EndShard
    std::function<void(const Parameter&, const Tensor&)> hand_over;  // HandOverGradient
  };

  // Gives the gradients of rank `place` their memory, and hangs on its blocks: backward makes them
  // whole. `reduce`: the dtype in which they are kept and summed. `sums_in_backward`: what a
  // completing backward leaves behind is summed at once, else when the stage is completed. Model
  // and kernels outlive it.
  // `experts`: the ranks that divide gradients of experts; null: those of all others do.
  ShardedGradients(Model& model, const ModelLayout& layout, int place, const ShardGroups& groups,
                   const ShardGroups* experts, DType reduce, int64_t shards, bool sums_in_backward,
                   Kernels& kernels, Hooks hooks);

  // The elements of a use's gradient that lie in this rank's shard, which may be none.
  Tensor Held(const Parameter& use) const;

  // Before the backward that completes a stage's gradients of a shard of the batch, and after the
  // last one that adds to them.
  void Completing() { is_completing_ = true; }
  void Completed(const BlockRange& stage);
  // Returns when all sums are there. Throws StatusException.
  void Await();

  // Bytes of the partial sums over shards; the most bytes of whole gradients that come and go, in a
  // step with these backwards; and bytes that a step sums over the ranks, and over replicas.
  int64_t partial_bytes() const;
  int64_t PeakWholeBytes(const std::vector<StageBackward>& backwards) const;
  void AddTraffic(CostPrediction& prediction) const;

 private:
  // The gradients of a unit's uses: the whole, always or while backward computes them, and this
  // rank's shard of their sum over the ranks.
  struct Flat {
    int64_t block;
    const ShardGroups* groups;
    std::vector<Parameter*> uses;
    Tensor whole;  // its memory comes and goes, and views of it stay valid; or it stays
    Tensor shard;  // where the whole stays, a view of it
    ShardSum sum;  // over shards of the batch, where gradients are divided
    Work reduce = {};
    bool is_summed = false;  // by the backward that completes the present shard
    bool is_under_way = false;
  };
  struct Place {
    const Flat* flat;
    int64_t at;  // in the rank's shard
    int64_t elements;
  };

  void AddFlat(int64_t block, const ShardGroups& groups, std::vector<Parameter*> uses,
               const FlatLayout& layout);
  void Enter(int64_t block);
  void Leave(int64_t block);
  void Materialize(Flat& flat);
  void Sum(Flat& flat);
  // Ends the first reduce-scatter under way.
  void Advance();
  bool stays_whole() const { return groups_.divided == Divided::kOptimizerState; }

  Kernels& kernels_;
  const ShardGroups groups_;
  const DType reduce_;
  const int64_t shards_;  // of the batch, that this rank trains
  const bool sums_in_backward_;
  const Hooks hooks_;
  std::vector<std::unique_ptr<Flat>> flats_;  // by block
  std::unordered_map<const Parameter*, Place> places_;
  bool is_completing_ = false;  // a backward that completes gradients goes on
  std::deque<Flat*> under_way_;
  std::vector<Work> over_replicas_;
};

}  // namespace lockstep
