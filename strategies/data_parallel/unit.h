#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "absl/container/flat_hash_set.h"
#include "core/config/precision.h"
#include "core/layout/flat_layout.h"
#include "core/nn/parameter.h"
#include "core/optim/optimizer.h"
#include "core/run/replica.h"
#include "strategies/data_parallel/flat_gradients.h"
#include "strategies/data_parallel/flat_parameters.h"
#include "strategies/data_parallel/shard_groups.h"

namespace lockstep {

// The parameters of one block that are trained, or that are frozen: what is gathered, given back
// and reduced together. Its parameters' values and gradients are views of wholes that come and go;
// what a rank trains and saves lies in its shards. A frozen unit has no gradients.
class FsdpUnit {
 public:
  // A parameter that owns its value, and those that are tied to it, in the order of the model.
  struct Member {
    Parameter* parameter;
    std::vector<Parameter*> tied;
  };

  // Gives the shard its memory and initial values. `layout`: of the members, in their order. Tied
  // parameters that have a gradient by then keep its memory.
  FsdpUnit(std::vector<Member> members, const FlatLayout& layout, const ShardGroups& groups,
           const Precision& precision, Kernels& kernels, uint64_t seed);

  FlatParameters& parameters() { return parameters_; }
  bool is_trained() const { return gradients_.has_value(); }
  // Of a trained unit.
  FlatGradients& gradients() { return *gradients_; }

  // After the last backward before the gradients are reduced: adds those of tied parameters, and
  // zeroes what received nothing. The next contribution then begins anew.
  void CompleteGradients();

  // The elements of each parameter that lie in the shard, which may be none: for the optimizer,
  // nothing of a frozen unit, and, in the same order, the values that checkpoints keep.
  const std::vector<TrainedTensor>& trained() const { return trained_; }
  const std::vector<Tensor>& values() const { return values_; }
  const std::vector<Member>& members() const { return members_; }

  // Of the gradients of tied parameters that come and go with the whole gradients.
  int64_t tied_bytes() const;

 private:
  Kernels& kernels_;
  std::vector<Member> members_;
  absl::flat_hash_set<const Parameter*> keeping_;  // tied ones that keep their gradients' memory
  FlatParameters parameters_;
  std::optional<FlatGradients> gradients_;
  std::vector<TrainedTensor> trained_;
  std::vector<Tensor> values_;
};

}  // namespace lockstep
