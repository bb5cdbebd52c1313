#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "core/nn/model.h"
#include "core/nn/pass.h"
#include "strategies/fsdp/gradient_sums.h"
#include "strategies/fsdp/peak_memory.h"
#include "strategies/fsdp/shard_groups.h"
#include "strategies/fsdp/unit.h"

namespace lockstep {

// When the units of a model are whole: hangs on its blocks, gathers what a block needs before it
// runs and the next block's meanwhile, and gives back what no block needs any more. Tells `sums`
// when backward reaches a unit and leaves it.
class Residency {
 public:
  // Makes the units of a model, one a block that has parameters of its own.
  Residency(Model& model, const ShardGroups& groups, const Precision& precision, GradientSums& sums,
            Kernels& kernels, uint64_t seed);

  // In the order of their blocks.
  const std::vector<std::unique_ptr<FsdpUnit>>& units() const { return units_; }
  // Of all units.
  std::vector<UnitNeeds> Needs() const;

 private:
  // The first and the last of the blocks that use a unit.
  struct Use {
    FsdpUnit* unit;
    int first, last;
  };

  void MakeUnits(const Model& model, const ShardGroups& groups, const Precision& precision,
                 Kernels& kernels, uint64_t seed);
  void BeforeForward(int block);
  void AfterForward(int block, const Pass& pass);
  void BeforeBackward(int block);
  void AfterBackward(int block);

  GradientSums& sums_;
  std::vector<std::unique_ptr<FsdpUnit>> units_;
  std::vector<Use> forward_;   // by first block
  std::vector<Use> backward_;  // by last block, from the end
};

}  // namespace lockstep
