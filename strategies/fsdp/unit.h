#pragma once

#include <cstdint>
#include <vector>

#include "core/nn/parameter.h"
#include "core/optim/optimizer.h"
#include "core/train/precision.h"
#include "core/train/replica.h"
#include "core/train/strategy.h"
#include "strategies/fsdp/flat_gradients.h"
#include "strategies/fsdp/flat_layout.h"
#include "strategies/fsdp/flat_parameters.h"
#include "strategies/fsdp/shard_groups.h"

namespace lockstep {

// The parameters of one block: what is gathered, given back and reduced together. Its parameters'
// values and gradients are views of wholes that come and go; what a rank trains and saves lies in
// its shards.
class FsdpUnit {
 public:
  // A parameter that owns its value, and those that are tied to it.
  struct Member {
    Parameter* parameter;
    std::vector<Parameter*> tied;
  };

  // Gives the shard its memory and initial values.
  FsdpUnit(std::vector<Member> members, const ShardGroups& groups, const Precision& precision,
           Kernels& kernels, uint64_t seed);

  FlatParameters& parameters() { return parameters_; }
  FlatGradients& gradients() { return gradients_; }

  // After the last backward before the gradients are reduced: adds those of tied parameters, and
  // zeroes what received nothing. The next contribution then begins anew.
  void CompleteGradients();

  // The part of each parameter that lies in the shard, which may be empty: for the optimizer, and,
  // in the same order, for checkpoints.
  const std::vector<TrainedTensor>& trained() const { return trained_; }
  const std::vector<StateTensor>& state() const { return state_; }

  // Of the gradients of tied parameters, which come and go with the whole gradients.
  int64_t tied_bytes() const;

 private:
  Kernels& kernels_;
  std::vector<Member> members_;
  FlatLayout layout_;
  FlatParameters parameters_;
  FlatGradients gradients_;
  std::vector<TrainedTensor> trained_;
  std::vector<StateTensor> state_;
};

}  // namespace lockstep
