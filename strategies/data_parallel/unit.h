#pragma once

#include <cstdint>
#include <vector>

#include "core/config/precision.h"
#include "core/layout/flat_layout.h"
#include "core/nn/parameter.h"
#include "core/optim/optimizer.h"
#include "strategies/data_parallel/flat_parameters.h"

namespace lockstep {

// The parameters of one block that are trained, or that are frozen: what is gathered and given back
// together. Their values are views of a whole that comes and goes; what a rank trains and saves
// lies in its shard.
class FsdpUnit {
 public:
  // A parameter that owns its value, and those that are tied to it, in the order of the model.
  struct Member {
    Parameter* parameter;
    std::vector<Parameter*> tied;
  };

  // Gives the shard its memory and initial values. `layout`: of the members, in their order.
  FsdpUnit(std::vector<Member> members, const FlatLayout& layout, const ShardGroups& groups,
           const Precision& precision, Kernels& kernels, uint64_t seed);

  FlatParameters& parameters() { return parameters_; }
  bool is_trained() const { return parameters_.master().defined(); }

  // The elements of each parameter that lie in the shard, which may be none: what the optimizer
  // updates, but for its gradient, or where the unit is frozen its value alone.
  const std::vector<TrainedTensor>& held() const { return held_; }
  const std::vector<Member>& members() const { return members_; }

 private:
  std::vector<Member> members_;
  FlatParameters parameters_;
  std::vector<TrainedTensor> held_;
};

}  // namespace lockstep
