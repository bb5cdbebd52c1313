#include "strategies/data_parallel/unit.h"

#include <algorithm>
#include <utility>

#include "glog/logging.h"

namespace lockstep {
namespace {

std::vector<Parameter*> Owners(const std::vector<FsdpUnit::Member>& members) {
  std::vector<Parameter*> owners;
  for (const FsdpUnit::Member& member : members) owners.push_back(member.parameter);
  return owners;
}

bool AreTrained(const std::vector<FsdpUnit::Member>& members) {
  const bool trained = members.front().parameter->trainable;
  for (const FsdpUnit::Member& member : members) {
    CHECK_EQ(member.parameter->trainable, trained) << member.parameter->name;
  }
  return trained;
}

DType Narrowest(const Precision& precision) {
  return SizeOf(precision.reduce) < SizeOf(precision.compute) ? precision.reduce
                                                              : precision.compute;
}

}  // namespace

FlatLayout LayOutUnit(const std::vector<Parameter*>& parameters, const ShardGroups& groups,
                      const Precision& precision) {
  return LayOut(parameters, groups.shards.size(), Narrowest(precision));
}

FsdpUnit::FsdpUnit(std::vector<Member> members, const ShardGroups& groups,
                   const Precision& precision, Kernels& kernels, uint64_t seed)
    : kernels_(kernels),
      members_(std::move(members)),
      layout_(LayOutUnit(Owners(members_), groups, precision)),
      parameters_(
          layout_, groups, precision.compute, kernels,
          AreTrained(members_) ? FlatParameters::Trained::kHere : FlatParameters::Trained::kNever) {
  if (AreTrained(members_)) gradients_.emplace(layout_, groups, precision.reduce, kernels);
  const Tensor& shard = is_trained() ? parameters_.master() : parameters_.shard();
  const int64_t begin = groups.shards.rank() * layout_.shard, end = begin + layout_.shard;
  for (size_t i = 0; i < members_.size(); ++i) {
    Parameter& parameter = *members_[i].parameter;
    // Behind the part of a parameter there may be padding, which stays 0 and is not trained.
    const int64_t offset = layout_.offsets[i], elements = parameter.part_shape().elements();
    parameter.value = parameters_.whole().View(offset, parameter.held_shape());
    if (is_trained()) {
      parameter.gradient = gradients_->whole().View(offset, parameter.held_shape());
    }
    for (Parameter* tied : members_[i].tied) {
      tied->value = parameter.value;
      if (tied->gradient.defined()) keeping_.insert(tied);
    }

    // Of the parameter's elements those in the shard. Both ends fall on the boundary, but where the
    // parameter itself ends.
    const int64_t first = std::clamp<int64_t>(begin - offset, 0, elements);
    const int64_t last = std::clamp<int64_t>(end - offset, 0, elements);
    const int64_t at = first < last ? offset + first - begin : 0;
    const Tensor value = shard.View(at, {last - first});
    Start(parameter, seed, first, value);
    state_.push_back({.name = parameter.name,
                      .tensor = value,
                      .full_shape = parameter.shape,
                      .first = first,
                      .is_writer = groups.replicas.rank() == 0,
                      .slice = parameter.slice,
                      .is_frozen = !is_trained()});
    if (!is_trained()) continue;
    trained_.push_back({.name = parameter.name,
                        .value = value,
                        .gradient = gradients_->shard().View(at, {last - first}),
                        .decays = parameter.decays(),
                        .copy = parameters_.has_master()
                                    ? parameters_.shard().View(at, {last - first})
                                    : Tensor()});
  }
  parameters_.RoundMaster();
}

// Initial values are drawn in fp32.
void FsdpUnit::Start(const Parameter& parameter, uint64_t seed, int64_t first,
                     const Tensor& value) {
  if (value.dtype() == DType::kF32) return Initialize(parameter, seed, first, kernels_, value);
  const Tensor drawn = kernels_.Empty(value.shape(), DType::kF32, MemoryClass::kParameters);
  Initialize(parameter, seed, first, kernels_, drawn);
  kernels_.Cast(drawn, value);
}

void FsdpUnit::CompleteGradients() {
  for (const Member& member : members_) {
    CompleteGradient(kernels_, *member.parameter, member.tied);
    member.parameter->ClearGradient();
    for (Parameter* tied : member.tied) {
      tied->ClearGradient();
      if (!keeping_.contains(tied)) tied->gradient = Tensor();
    }
  }
}

int64_t FsdpUnit::tied_bytes() const {
  int64_t bytes = 0;
  if (!is_trained()) return bytes;
  for (const Member& member : members_) {
    for (const Parameter* tied : member.tied) {
      if (keeping_.contains(tied)) continue;
      bytes += tied->held_shape().elements() * SizeOf(tied->gradient_dtype);
    }
  }
  return bytes;
}

}  // namespace lockstep
