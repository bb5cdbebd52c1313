#include "strategies/fsdp/residency.h"

#include <algorithm>
#include <utility>

#include "absl/container/flat_hash_map.h"

namespace lockstep {

Residency::Residency(Model& model, const ShardGroups& groups, const Precision& precision,
                     GradientSums& sums, Kernels& kernels, uint64_t seed)
    : sums_(sums) {
  MakeUnits(model, groups, precision, kernels, seed);
  std::stable_sort(forward_.begin(), forward_.end(),
                   [](const Use& a, const Use& b) { return a.first < b.first; });
  backward_ = forward_;
  std::stable_sort(backward_.begin(), backward_.end(),
                   [](const Use& a, const Use& b) { return a.last > b.last; });
  for (size_t block = 0; block < model.blocks.size(); ++block) {
    const int index = static_cast<int>(block);
    model.blocks[block]->AddHooks(
        {.before_forward = [=, this](Pass&) { BeforeForward(index); },
         .after_forward = [=, this](Pass& pass) { AfterForward(index, pass); },
         .before_backward = [=, this] { BeforeBackward(index); },
         .after_backward = [=, this] { AfterBackward(index); }});
  }
}

void Residency::MakeUnits(const Model& model, const ShardGroups& groups, const Precision& precision,
                          Kernels& kernels, uint64_t seed) {
  absl::flat_hash_map<const Parameter*, std::vector<Parameter*>> tied_to;
  absl::flat_hash_map<const Parameter*, Use> uses;  // by owner
  for (size_t block = 0; block < model.blocks.size(); ++block) {
    const int index = static_cast<int>(block);
    for (Parameter* parameter : model.blocks[block]->Parameters()) {
      const bool owns = parameter->tied_to == nullptr;
      if (!owns) tied_to[parameter->tied_to].push_back(parameter);
      const Parameter* owner = owns ? parameter : parameter->tied_to;
      Use& use = uses.try_emplace(owner, Use{nullptr, index, index}).first->second;
      use.first = std::min(use.first, index);
      use.last = std::max(use.last, index);
    }
  }
  for (const auto& block : model.blocks) {
    std::vector<FsdpUnit::Member> members;
    Use use = {};
    for (Parameter* parameter : block->Parameters()) {
      if (parameter->tied_to != nullptr) continue;
      const Use& own = uses.at(parameter);
      use.first = members.empty() ? own.first : std::min(use.first, own.first);
      use.last = members.empty() ? own.last : std::max(use.last, own.last);
      members.push_back({parameter, tied_to[parameter]});
    }
    if (members.empty()) continue;
    units_.push_back(
        std::make_unique<FsdpUnit>(std::move(members), groups, precision, kernels, seed));
    use.unit = units_.back().get();
    forward_.push_back(use);
  }
}

void Residency::BeforeForward(int block) {
  for (size_t i = 0; i < forward_.size(); ++i) {
    if (forward_[i].first != block) continue;
    forward_[i].unit->parameters().AwaitWhole();
    if (i + 1 < forward_.size()) forward_[i + 1].unit->parameters().Gather();
  }
}

void Residency::AfterForward(int block, const Pass& pass) {
  for (const Use& use : forward_) {
    if (use.last != block) continue;
    if (pass.tape.recording()) {
      use.unit->parameters().Rest();
    } else {
      use.unit->parameters().Release();
    }
  }
}

void Residency::BeforeBackward(int block) {
  for (size_t i = 0; i < backward_.size(); ++i) {
    if (backward_[i].last != block) continue;
    backward_[i].unit->parameters().AwaitWhole();
    sums_.Enter(*backward_[i].unit);
    if (i + 1 < backward_.size()) backward_[i + 1].unit->parameters().Gather();
  }
}

void Residency::AfterBackward(int block) {
  for (const Use& use : backward_) {
    if (use.first != block) continue;
    use.unit->parameters().Release();
    sums_.Leave(*use.unit);
  }
}

std::vector<UnitNeeds> Residency::Needs() const {
  std::vector<UnitNeeds> needs;
  for (const Use& use : forward_) {
    needs.push_back({.first = use.first,
                     .last = use.last,
                     .whole = use.unit->parameters().whole().bytes(),
                     .resting = use.unit->parameters().resting_bytes(),
                     .gradient = use.unit->gradients().whole().bytes(),
                     .shard = use.unit->gradients().shard().bytes(),
                     .tied = use.unit->tied_bytes()});
  }
  return needs;
}

}  // namespace lockstep
