#include "strategies/data_parallel/residency.h"

#include <algorithm>
#include <limits>
#include <unordered_map>
#include <utility>

namespace lockstep {
namespace {

Parameter* OwnerOf(Parameter* parameter) {
  return parameter->tied_to == nullptr ? parameter : parameter->tied_to;
}

// The first block with something to train: before it, nothing needs gradients.
int64_t FirstTrained(const ModelLayout& layout) {
  for (const ModelTensor& tensor : layout.tensors()) {
    if (!tensor.is_frozen && !tensor.statistic) return tensor.block;
  }
  return std::numeric_limits<int64_t>::max();
}

using Units = std::vector<UnitNeeds>;

// Bytes of a unit that is whole, or rests, or is about to go from one to the other. One that rests
// as a whole does not exist twice.
int64_t Bytes(const UnitNeeds& unit, bool is_whole, bool rests) {
  if (is_whole && rests && unit.resting == unit.whole) return unit.whole;
  return (is_whole ? unit.whole : 0) + (rests ? unit.resting : 0);
}

// The most bytes while a pass goes through the blocks in their order. `rests_before`,
// `rests_after`: whether units rest until the pass gathers them, and after their last block.
int64_t PeakOfPass(Units units, bool rests_before, bool rests_after) {
  std::stable_sort(units.begin(), units.end(),
                   [](const UnitNeeds& a, const UnitNeeds& b) { return a.first < b.first; });
  int64_t peak = 0;
  for (size_t i = 0; i < units.size(); ++i) {
    // While the first block of unit i runs: what has begun and is not over, and the next one; what
    // rests, and what is about to.
    int64_t live = 0;
    for (size_t j = 0; j < units.size(); ++j) {
      const bool has_begun = j <= i;
      live += Bytes(units[j], has_begun ? units[j].last >= units[i].first : j == i + 1,
                    has_begun ? rests_after && units[j].last <= units[i].first : rests_before);
    }
    peak = std::max(peak, live);
  }
  return peak;
}

}  // namespace

int64_t PeakParameterBytes(const Units& units, bool recomputes) {
  // Backward is a pass through the blocks from the end, in which what is used is given back.
  Units backward = units;
  std::erase_if(backward, [](const UnitNeeds& unit) { return !unit.in_backward; });
  for (UnitNeeds& unit : backward) unit.first = -std::exchange(unit.last, -unit.first);
  return std::max(PeakOfPass(units, recomputes, /*rests_after=*/true),
                  PeakOfPass(backward, /*rests_before=*/true, /*rests_after=*/false));
}

Residency::Residency(Model& model, const ModelLayout& layout, int place, const ShardGroups& groups,
                     const ShardGroups* experts, const Precision& precision, Unshard unshard,
                     Kernels& kernels, uint64_t seed)
    : unshard_(unshard), first_trained_(FirstTrained(layout)) {
  const auto blocks = static_cast<int64_t>(model.blocks.size());
  for (const BlockRange& range : layout.blocks(place)) {
    use_orders_.push_back(
        {.range = {range.begin, std::min(range.end, blocks)}, .forward = {}, .backward = {}});
  }
  const std::vector<Parameter*> all = model.Parameters();
  std::unordered_map<const Parameter*, std::vector<Parameter*>> tied_to, tied_here;
  for (size_t i = 0; i < all.size(); ++i) {
    if (all[i]->tied_to == nullptr) continue;
    tied_to[all[i]->tied_to].push_back(all[i]);
    if (layout.Has(place, i)) tied_here[all[i]->tied_to].push_back(all[i]);
  }
  for (const ModelLayout::Unit* unit : layout.UnitsOf(place)) {
    const FlatLayout& flat = layout.FlatOf(place, *unit);
    if (unit->is_tied_copy) {
      Parameter* owner = all[unit->tensors[0]];
      tied_copies_.push_back(
          {owner, tied_here[owner],
           std::make_unique<FlatParameters>(flat, groups, precision.compute, kernels,
                                            /*is_trained=*/false)});
      for (Parameter* tied : tied_copies_.back().copies) {
        tied->value = tied_copies_.back().parameters->whole().View(0, tied->held_shape());
      }
      continue;
    }
    std::vector<FsdpUnit::Member> members;
    for (const size_t i : unit->tensors) members.push_back({all[i], tied_to[all[i]]});
    units_.push_back(std::make_unique<FsdpUnit>(std::move(members), flat,
                                                unit->is_of_experts ? *experts : groups, precision,
                                                kernels, seed));
  }
  for (UseOrder& order : use_orders_) {
    FindUses(order, model);
    for (int64_t i = order.range.begin; i < order.range.end; ++i) {
      model.blocks[i]->AddHooks(
          {.before_forward = [&order, i](Pass&) { MakeWhole(order.forward, &Use::first, i); },
           .after_forward = [this, &order, i](Pass& pass) { AfterForward(order, i, pass); },
           .before_backward = [&order, i] { MakeWhole(order.backward, &Use::last, i); },
           .after_backward = [this, &order, i] { AfterBackward(order, i); }});
    }
  }
}

void Residency::FindUses(UseOrder& order, const Model& model) {
  std::unordered_map<const Parameter*, FlatParameters*> holders;  // by owner
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

void Residency::MakeWhole(const std::vector<Use>& uses, int64_t Use::*first, int64_t block) {
  for (size_t i = 0; i < uses.size(); ++i) {
    if (uses[i].*first != block) continue;
    uses[i].parameters->AwaitWhole();
    if (i + 1 < uses.size()) uses[i + 1].parameters->Gather();
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
                       .resting = IsInBackward(use) ? use.parameters->resting_bytes() : 0,
                       .shards = use.parameters->groups().shards.size(),
                       .neighbours = use.parameters->groups().neighbours.size()});
    }
  }
  return needs;
}

}  // namespace lockstep
