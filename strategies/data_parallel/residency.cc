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
                     const Precision& precision, Unshard unshard, BackwardHooks hooks,
                     Kernels& kernels, uint64_t seed)
    : unshard_(unshard), hooks_(std::move(hooks)), first_trained_(FirstTrained(model)) {
  const auto blocks = static_cast<int64_t>(model.blocks.size());
  for (const BlockRange& range : layout.blocks(place)) {
    ways_.push_back(
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
    if (unit->is_guest) {
      Parameter* owner = all[unit->tensors[0]];
      guests_.push_back({owner, tied_here[owner],
                         std::make_unique<FlatParameters>(flat, groups, precision.compute, kernels,
                                                          FlatParameters::Trained::kElsewhere)});
      for (Parameter* guest : guests_.back().guests) {
        guest->value = guests_.back().parameters->whole().View(0, guest->held_shape());
      }
      continue;
    }
    std::vector<FsdpUnit::Member> members;
    for (const size_t i : unit->tensors) members.push_back({all[i], tied_to[all[i]]});
    units_.push_back(
        std::make_unique<FsdpUnit>(std::move(members), flat, groups, precision, kernels, seed));
  }
  for (Way& way : ways_) {
    FindUses(way, model);
    for (int64_t i = way.range.begin; i < way.range.end; ++i) {
      model.blocks[i]->AddHooks(
          {.before_forward = [this, &way, i](Pass&) { BeforeForward(way, i); },
           .after_forward = [this, &way, i](Pass& pass) { AfterForward(way, i, pass); },
           .before_backward = [this, &way, i] { BeforeBackward(way, i); },
           .after_backward = [this, &way, i] { AfterBackward(way, i); }});
    }
  }
}

void Residency::FindUses(Way& way, const Model& model) {
  absl::flat_hash_map<const Parameter*, std::pair<FlatParameters*, FsdpUnit*>> holders;  // by owner
  for (const auto& unit : units_) {
    for (const FsdpUnit::Member& member : unit->members()) {
      holders[member.parameter] = {&unit->parameters(), unit.get()};
    }
  }
  for (const FsdpGuest& guest : guests_) holders[guest.owner] = {guest.parameters.get(), nullptr};
  for (int64_t i = way.range.begin; i < way.range.end; ++i) {
    for (Parameter* parameter : model.blocks[i]->Parameters()) {
      const auto [parameters, unit] = holders.at(OwnerOf(parameter));
      const auto used =
          std::find_if(way.forward.begin(), way.forward.end(),
                       [&, held = parameters](const Use& use) { return use.parameters == held; });
      if (used == way.forward.end()) {
        way.forward.push_back({parameters, unit, i, i});
      } else {
        used->last = i;
      }
    }
  }
  way.backward = way.forward;
  std::erase_if(way.backward, [this](const Use& use) { return !IsInBackward(use); });
  std::stable_sort(way.backward.begin(), way.backward.end(),
                   [](const Use& a, const Use& b) { return a.last > b.last; });
}

bool Residency::Uses(const BlockRange& range, const FsdpUnit& unit) const {
  for (const Way& way : ways_) {
    if (way.range.begin != range.begin) continue;
    return std::any_of(way.forward.begin(), way.forward.end(),
                       [&unit](const Use& use) { return use.unit == &unit; });
  }
  return false;
}

void Residency::BeforeForward(const Way& way, int64_t block) {
  for (size_t i = 0; i < way.forward.size(); ++i) {
    if (way.forward[i].first != block) continue;
    way.forward[i].parameters->AwaitWhole();
    if (i + 1 < way.forward.size()) way.forward[i + 1].parameters->Gather();
  }
}

void Residency::AfterForward(const Way& way, int64_t block, const Pass& pass) {
  if (pass.training() && unshard_ == Unshard::kStep) return;
  for (const Use& use : way.forward) {
    if (use.last != block) continue;
    if ((pass.tape.recording() || pass.is_checkpointing()) && IsInBackward(use)) {
      use.parameters->Rest();
    } else {
      use.parameters->Release();
    }
  }
}

void Residency::BeforeBackward(const Way& way, int64_t block) {
  for (size_t i = 0; i < way.backward.size(); ++i) {
    if (way.backward[i].last != block) continue;
    way.backward[i].parameters->AwaitWhole();
    FsdpUnit* unit = way.backward[i].unit;
    if (unit != nullptr && unit->is_trained()) hooks_.enter(*unit);
    if (i + 1 < way.backward.size()) way.backward[i + 1].parameters->Gather();
  }
}

void Residency::AfterBackward(const Way& way, int64_t block) {
  for (const Use& use : way.backward) {
    if (use.first != block) continue;
    if (unshard_ == Unshard::kPass) use.parameters->Release();
    if (use.unit != nullptr && use.unit->is_trained()) hooks_.leave(*use.unit);
  }
}

void Residency::EndStep() {
  for (const auto& unit : units_) unit->parameters().Release();
  for (const FsdpGuest& guest : guests_) guest.parameters->Release();
}

std::vector<UnitNeeds> Residency::Needs(const BlockRange& range) const {
  std::vector<UnitNeeds> needs;
  for (const Way& way : ways_) {
    if (way.range.begin != range.begin) continue;
    for (const Use& use : way.forward) {
      UnitNeeds need = {.first = static_cast<int>(use.first),
                        .last = static_cast<int>(use.last),
                        .in_backward = IsInBackward(use),
                        .whole = use.parameters->whole().bytes(),
                        .resting = IsInBackward(use) ? use.parameters->resting_bytes() : 0};
      if (use.unit != nullptr && use.unit->is_trained()) {
        need.gradient = use.unit->gradients().whole().bytes();
        need.tied = use.unit->tied_bytes();
      }
      needs.push_back(need);
    }
  }
  return needs;
}

}  // namespace lockstep
