#include "strategies/data_parallel/unit.h"

#include <utility>

namespace lockstep {

FsdpUnit::FsdpUnit(std::vector<Member> members, const FlatLayout& layout, const ShardGroups& groups,
                   const Precision& precision, Kernels& kernels, uint64_t seed)
    : members_(std::move(members)),
      parameters_(layout, groups, precision.compute, kernels, members_[0].parameter->trainable) {
  const Tensor& shard = is_trained() ? parameters_.master() : parameters_.shard();
  for (size_t i = 0; i < members_.size(); ++i) {
    Parameter& parameter = *members_[i].parameter;
    // Padding behind a parameter stays 0 and is not trained.
    const int64_t offset = layout.members[i].offset;
    parameter.value = parameters_.whole().View(offset, parameter.held_shape());
    for (Parameter* tied : members_[i].tied) tied->value = parameter.value;

    const Range own = layout.InShard(i, groups.shards.rank());
    const int64_t at = layout.OffsetInShard(i, groups.shards.rank());
    const bool has_copy = parameters_.has_master();
    held_.push_back({.name = parameter.name,
                     .value = shard.View(at, {own.count}),
                     .gradient = Tensor(),
                     .decays = parameter.decays(),
                     .copy = has_copy ? parameters_.shard().View(at, {own.count}) : Tensor()});
    Initialize(parameter, seed, own.first, kernels, held_.back().value);
  }
  parameters_.RoundMaster();
}

}  // namespace lockstep
