#include "strategies/data_parallel/residency.h"

#include <algorithm>
#include <utility>

#include "absl/container/flat_hash_map.h"

namespace lockstep {
namespace {

Parameter* OwnerOf(Parameter* parameter) {
  return parameter->tied_to == nullptr ? parameter : parameter->tied_to;
}

// The first block with something to train: before it, nothing needs gradients.
int64_t FirstTrained(const Model& model) {
  for (size_t i = 0; i < model.blocks.size(); ++i) {
    for (const Parameter* parameter : model.blocks[i]->Parameters()) {
      if (parameter->trainable) return static_cast<int64_t>(i);
    }
  }
  return static_cast<int64_t>(model.blocks.size());
}

}  // namespace

Residency::Residency(Model& model, const ModelLayout& layout, int place, const ShardGroups& groups,
                     const Precision& precision, Unshard unshard, Kernels& kernels, uint64_t seed)
    : unshard_(unshard), first_trained_(FirstTrained(model)) {
  const auto blocks = static_cast<int64_t>(model.blocks.size());
  for (const BlockRange& range : layout.blocks(place)) {
    use_orders_.push_back(
        {.range = {range.begin, std::min(range.end, blocks)}, .forward = {}, .backward = {}});
  }
  const std::vector<Parameter*> all = model.Parameters();
  absl::flat_hash_map<const Parameter*, std::vector<Parameter*>> tied_to, tied_here;
  for (size_t i = 0; i < all.size(); ++i) {
    if (all[i]->tied_to == nullptr) continue;
    tied_to[all[i]->tied_to].push_back(all[i]);
    if (layout.Has(place, i)) tied_here[all[i]->tied_to].push_back(all[i]);
  }
  for (const ModelLayout::Unit* unit : layout.UnitsOf(place)) {
    const FlatLayout& flat = unit->flat[layout.mesh().CoordinateOf(place).tp];
    if (unit->is_tied_copy) {
      Parameter* owner = all[unit->tensors[0]];
      tied_copies_.push_back(
          {owner, tied_here[owner],
           std::make_unique<FlatParameters>(flat, groups, precision.compute, kernels,
                                            FlatParameters::Trained::kElsewhere)});
      for (Parameter* tied : tied_copies_.back().copies) {
        tied->value = tied_copies_.back().parameters->whole().View(0, tied->held_shape());
      }
      continue;
    }
    std::vector<FsdpUnit::Member> members;
    for (const size_t i : unit->tensors) members.push_back({all[i], tied_to[all[i]]});
    units_.push_back(
        std::make_unique<FsdpUnit>(std::move(members), flat, groups, precision, kernels, seed));
  }
  for (UseOrder& order : use_orders_) {
    FindUses(order, model);
    for (int64_t i = order.range.begin; i < order.range.end; ++i) {
      model.blocks[i]->AddHooks(
          {.before_forward = [this, &order, i](Pass&) { BeforeForward(order, i); },
           .after_forward = [this, &order, i](Pass& pass) { AfterForward(order, i, pass); },
           .before_backward = [this, &order, i] { BeforeBackward(order, i); },
           .after_backward = [this, &order, i] { AfterBackward(order, i); }});
    }
  }
}

void Residency::FindUses(UseOrder& order, const Model& model) {
  absl::flat_hash_map<const Parameter*, FlatParameters*> holders;  // by owner
  for (const auto& unit : units_) {
    for (const FsdpUnit::Member& member : unit->members()) {
      holders[member.parameter] = &unit->parameters();
    }
  }
  for (const TiedCopies& tied : tied_copies_) holders[tied.owner] = tied.parameters.get();
  for (int64_t i = order.range.begin; i < order.range.end; ++i) {
    for (Parameter* parameter : model.blocks[i]->Parameters()) {
      FlatParameters* parameters = holders.at(OwnerOf(parameter));
      const auto used = std::find_if(order.forward.begin(), order.forward.end(),
                                     [&](const Use& use) { return use.parameters == parameters; });
      if (used == order.forward.end()) {
        order.forward.push_back({parameters, i, i});
      } else {
        used->last = i;
      }
    }
  }
  order.backward = order.forward;
  std::erase_if(order.backward, [this](const Use& use) { return !IsInBackward(use); });
  std::stable_sort(order.backward.begin(), order.backward.end(),
                   [](const Use& a, const Use& b) { return a.last > b.last; });
}

void Residency::BeforeForward(const UseOrder& order, int64_t block) {
  for (size_t i = 0; i < order.forward.size(); ++i) {
    if (order.forward[i].first != block) continue;
    order.forward[i].parameters->AwaitWhole();
    if (i + 1 < order.forward.size()) order.forward[i + 1].parameters->Gather();
  }
}

void Residency::AfterForward(const UseOrder& order, int64_t block, const Pass& pass) {
  if (pass.training() && unshard_ == Unshard::kStep) return;
  for (const Use& use : order.forward) {
    if (use.last != block) continue;
    if (pass.training() && IsInBackward(use)) {
      use.parameters->Rest();
    } else {
      use.parameters->Release();
    }
  }
}

void Residency::BeforeBackward(const UseOrder& order, int64_t block) {
  for (size_t i = 0; i < order.backward.size(); ++i) {
    if (order.backward[i].last != block) continue;
    order.backward[i].parameters->AwaitWhole();
    if (i + 1 < order.backward.size()) order.backward[i + 1].parameters->Gather();
  }
}

void Residency::AfterBackward(const UseOrder& order, int64_t block) {
  for (const Use& use : order.backward) {
    if (use.first == block && unshard_ == Unshard::kPass) use.parameters->Release();
  }
}

void Residency::EndStep() {
  for (const auto& unit : units_) unit->parameters().Release();
  for (const TiedCopies& tied : tied_copies_) tied.parameters->Release();
}

std::vector<UnitNeeds> Residency::Needs(const BlockRange& range) const {
  std::vector<UnitNeeds> needs;
  for (const UseOrder& order : use_orders_) {
    if (order.range.begin != range.begin) continue;
    for (const Use& use : order.forward) {
      needs.push_back({.first = static_cast<int>(use.first),
                       .last = static_cast<int>(use.last),
                       .in_backward = IsInBackward(use),
                       .whole = use.parameters->whole().bytes(),
                       .resting = IsInBackward(use) ? use.parameters->resting_bytes() : 0});
    }
  }
  return needs;
}

}  // namespace lockstep
