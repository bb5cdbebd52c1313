#include "strategies/data_parallel/residency.h"

#include <algorithm>
#include <map>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"

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

Residency::Residency(Model& model, const std::vector<BlockRange>& ranges, const ShardGroups& groups,
                     const Precision& precision, Unshard unshard, BackwardHooks hooks,
                     Kernels& kernels, uint64_t seed)
    : unshard_(unshard), hooks_(std::move(hooks)), first_trained_(FirstTrained(model)) {
  const auto blocks = static_cast<int64_t>(model.blocks.size());
  for (const BlockRange& range : ranges) {
    ways_.push_back(
        {.range = {range.begin, std::min(range.end, blocks)}, .forward = {}, .backward = {}});
  }
  MakeUnits(model, groups, precision, kernels, seed);
  MakeGuests(model, groups, precision, kernels);
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

bool Residency::IsHere(int64_t block) const {
  return std::any_of(ways_.begin(), ways_.end(),
                     [block](const Way& way) { return way.range.Contains(block); });
}

void Residency::MakeUnits(const Model& model, const ShardGroups& groups, const Precision& precision,
                          Kernels& kernels, uint64_t seed) {
  absl::flat_hash_map<const Parameter*, std::vector<Parameter*>> tied_to;
  absl::flat_hash_set<const Parameter*> elsewhere;  // owners that other ranks have guests of
  for (size_t i = 0; i < model.blocks.size(); ++i) {
    for (Parameter* parameter : model.blocks[i]->Parameters()) {
      if (parameter->tied_to == nullptr) continue;
      tied_to[parameter->tied_to].push_back(parameter);
      if (!IsHere(static_cast<int64_t>(i))) elsewhere.insert(parameter->tied_to);
    }
  }
  const auto add = [&](std::vector<FsdpUnit::Member> members) {
    if (members.empty()) return;
    units_.push_back(
        std::make_unique<FsdpUnit>(std::move(members), groups, precision, kernels, seed));
  };
  for (size_t i = 0; i < model.blocks.size(); ++i) {
    if (!IsHere(static_cast<int64_t>(i))) continue;
    std::vector<FsdpUnit::Member> frozen, trained;
    for (Parameter* parameter : model.blocks[i]->Parameters()) {
      if (parameter->tied_to != nullptr) continue;
      FsdpUnit::Member member = {parameter, tied_to[parameter]};
      if (elsewhere.contains(parameter)) {
        add({std::move(member)});
      } else {
        (parameter->trainable ? trained : frozen).push_back(std::move(member));
      }
    }
    add(std::move(frozen));
    add(std::move(trained));
  }
}

void Residency::MakeGuests(const Model& model, const ShardGroups& groups,
                           const Precision& precision, Kernels& kernels) {
  absl::flat_hash_set<const Parameter*> here;
  for (const auto& unit : units_) {
    for (const FsdpUnit::Member& member : unit->members()) here.insert(member.parameter);
  }
  for (size_t i = 0; i < model.blocks.size(); ++i) {
    if (!IsHere(static_cast<int64_t>(i))) continue;
    for (Parameter* parameter : model.blocks[i]->Parameters()) {
      Parameter* owner = OwnerOf(parameter);
      if (owner == parameter || here.contains(owner)) continue;
      auto found = std::find_if(guests_.begin(), guests_.end(),
                                [owner](const FsdpGuest& guest) { return guest.owner == owner; });
      if (found == guests_.end()) {
        const FlatLayout layout = LayOutUnit({owner}, groups, precision);
        guests_.push_back(
            {owner,
             {},
             std::make_unique<FlatParameters>(layout, groups, precision.compute, kernels,
                                              FlatParameters::Trained::kElsewhere)});
        found = std::prev(guests_.end());
      }
      found->guests.push_back(parameter);
      parameter->value = found->parameters->whole().View(0, parameter->held_shape());
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
    if (pass.training() && IsInBackward(use)) {
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
