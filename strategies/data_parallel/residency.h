#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "core/nn/model.h"
#include "core/nn/pass.h"
#include "core/run/strategy/local_model.h"
#include "strategies/data_parallel/unit.h"

namespace lockstep {

// How long a unit stays whole once it was gathered: for one pass through the blocks that use it,
// or until the step has no more use for it, which takes more memory and gathers it once only.
// Where parameters are not divided, units stay whole always.
enum class Unshard { kPass, kStep };

// Parameters here that are tied to one `owner` on a rank with other blocks. Their values come from
// the owner's, and lie in shards as those do.
struct TiedCopies {
  Parameter* owner;
  std::vector<Parameter*> copies;
  std::unique_ptr<FlatParameters> parameters;
};

// What a unit needs beside its shards, in bytes, and when.
struct UnitNeeds {
  int first = 0, last = 0;         // of the blocks that use it
  bool in_backward = true;         // whether gradients flow through these blocks
  int64_t whole = 0;               // its parameters
  int64_t resting = 0;             // kept of them between forward and backward
  int shards = 1, neighbours = 1;  // ranks that have a shard, and that keep the unit together
};

// The most bytes of parameters beside the shards that exist at one time: a unit is whole from the
// first block that uses it to the last, in each direction, and the next one is being gathered.
// `recomputes`: whether forward runs a second time before backward, when all units rest.
int64_t PeakParameterBytes(const std::vector<UnitNeeds>& units, bool recomputes = false);

// When the units of a model are whole: hangs on its blocks, gathers what a block needs before it
// runs and the next block's meanwhile, and gives back what no block needs any more.
class Residency {
 public:
  // Makes the units that `layout` gives to its rank `place`, and hangs on that rank's blocks. What
  // lies before all that is trained is not gathered for backward.
  // `experts`: the ranks that divide units of experts; null: those of all others do.
  Residency(Model& model, const ModelLayout& layout, int place, const ShardGroups& groups,
            const ShardGroups* experts, const Precision& precision, Unshard unshard,
            Kernels& kernels, uint64_t seed);

  // In the order of their blocks.
  const std::vector<std::unique_ptr<FsdpUnit>>& units() const { return units_; }
  const std::vector<TiedCopies>& tied_copies() const { return tied_copies_; }
  // What a pass through a range needs of each unit.
  std::vector<UnitNeeds> Needs(const BlockRange& range) const;

  // With Unshard::kStep: gives back what has stayed whole. Before values change.
  void EndStep();

 private:
  // The first and the last of the blocks of a range that use a unit, or tied copies.
  struct Use {
    FlatParameters* parameters;
    int64_t first, last;
  };
  struct UseOrder {  // of the units, in passes through a range
    BlockRange range;
    std::vector<Use> forward;   // by first block
    std::vector<Use> backward;  // by last block, from the end; those that gradients flow through
  };

  void FindUses(UseOrder& order, const Model& model);
  bool IsInBackward(const Use& use) const { return use.last >= first_trained_; }
  // Before a pass comes to a block, which is the first one to use some of `uses`: brings these
  // together, and begins with the next.
  static void MakeWhole(const std::vector<Use>& uses, int64_t Use::*first, int64_t block);
  void AfterForward(const UseOrder& order, int64_t block, const Pass& pass);
  void AfterBackward(const UseOrder& order, int64_t block);

  const Unshard unshard_;
  const int64_t first_trained_;  // block of the whole model
  std::vector<UseOrder> use_orders_;
  std::vector<std::unique_ptr<FsdpUnit>> units_;
  std::vector<TiedCopies> tied_copies_;
};

}  // namespace lockstep
