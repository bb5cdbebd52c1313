#include "strategies/fsdp/residency.h"

#include <algorithm>
#include <utility>

#include "absl/container/flat_hash_map.h"

namespace lockstep {
namespace {

// Sums in flight at one time: the next one may begin while the one before is on its way.
constexpr size_t kReductions = 2;

}  // namespace

Residency::Residency(Model& model, Communicator& ranks, Kernels& kernels, uint64_t seed,
                     ReshardAfterForward reshard)
    : reshard_(reshard) {
  absl::flat_hash_map<const Parameter*, size_t> unit_of;
  for (size_t block = 0; block < model.blocks.size(); ++block) {
    std::vector<Parameter*> own;
    for (Parameter* parameter : model.blocks[block]->Parameters()) {
      if (parameter->tied_to == nullptr) own.push_back(parameter);
    }
    if (own.empty()) continue;
    for (const Parameter* parameter : own) unit_of[parameter] = units_.size();
    units_.push_back(std::make_unique<FsdpUnit>(std::move(own), ranks, kernels, seed));
    const int index = static_cast<int>(block);
    forward_.push_back({units_.back().get(), index, index});
  }
  for (size_t block = 0; block < model.blocks.size(); ++block) {
    for (Parameter* parameter : model.blocks[block]->Parameters()) {
      if (parameter->tied_to == nullptr) continue;
      parameter->value = parameter->tied_to->value;
      Use& use = forward_[unit_of.at(parameter->tied_to)];
      use.first = std::min(use.first, static_cast<int>(block));
      use.last = std::max(use.last, static_cast<int>(block));
    }
  }
  std::stable_sort(forward_.begin(), forward_.end(),
                   [](const Use& a, const Use& b) { return a.first < b.first; });
  backward_ = forward_;
  std::stable_sort(backward_.begin(), backward_.end(),
                   [](const Use& a, const Use& b) { return a.last > b.last; });
  for (size_t block = 0; block < model.blocks.size(); ++block) {
    const int index = static_cast<int>(block);
    model.blocks[block]->AddHooks({.before_forward = [=, this](Pass&) { BeforeForward(index); },
                                   .after_forward = [=, this](Pass&) { AfterForward(index); },
                                   .before_backward = [=, this] { BeforeBackward(index); },
                                   .after_backward = [=, this] { AfterBackward(index); }});
  }
}

void Residency::BeforeForward(int block) {
  for (size_t i = 0; i < forward_.size(); ++i) {
    if (forward_[i].first != block) continue;
    forward_[i].unit->AwaitWhole();
    if (i + 1 < forward_.size()) forward_[i + 1].unit->Gather();
  }
}

void Residency::AfterForward(int block) {
  if (reshard_ == ReshardAfterForward::kNo) return;
  for (const Use& use : forward_) {
    if (use.last == block) use.unit->Release();
  }
}

void Residency::BeforeBackward(int block) {
  for (size_t i = 0; i < backward_.size(); ++i) {
    if (backward_[i].last != block) continue;
    backward_[i].unit->AwaitWhole();
    backward_[i].unit->PrepareGradients();
    if (i + 1 < backward_.size()) backward_[i + 1].unit->Gather();
  }
}

void Residency::AfterBackward(int block) {
  for (const Use& use : backward_) {
    if (use.first != block) continue;
    use.unit->Release();
    if (kind_ == MicroBatch::kAccumulates) continue;
    complete_(*use.unit);
    if (reducing_.size() == kReductions) {
      reducing_.front()->AwaitReduced();
      reducing_.pop_front();
    }
    use.unit->Reduce();
    reducing_.push_back(use.unit);
  }
}

void Residency::AwaitReduced() {
  for (FsdpUnit* unit : reducing_) unit->AwaitReduced();
  reducing_.clear();
}

void Residency::ReleaseAll() {
  for (const auto& unit : units_) unit->Release();
}

int64_t Residency::peak_whole_bytes() const {
  int64_t all = 0, peak = 0;
  for (const auto& unit : units_) all += unit->whole_bytes();
  if (reshard_ == ReshardAfterForward::kNo) return all;
  for (size_t i = 0; i < forward_.size(); ++i) {
    // While the block of unit i runs: whatever has begun and is not over, and the next one.
    int64_t live = i + 1 < forward_.size() ? forward_[i + 1].unit->whole_bytes() : 0;
    for (size_t j = 0; j <= i; ++j) {
      if (forward_[j].last >= forward_[i].first) live += forward_[j].unit->whole_bytes();
    }
    peak = std::max(peak, live);
  }
  for (size_t i = 0; i < backward_.size(); ++i) {
    int64_t live = i + 1 < backward_.size() ? backward_[i + 1].unit->whole_bytes() : 0;
    for (size_t j = 0; j <= i; ++j) {
      if (backward_[j].first <= backward_[i].last) live += backward_[j].unit->whole_bytes();
    }
    peak = std::max(peak, live);
  }
  return peak;
}

int64_t Residency::peak_gradient_bytes(int64_t micro_batches) const {
  int64_t all = 0, peak = 0;
  for (const auto& unit : units_) all += unit->whole_bytes();
  if (micro_batches > 1) return all;
  for (size_t i = 0; i < backward_.size(); ++i) {
    // Those in work, and those whose sums may still be on their way.
    int64_t live = 0;
    size_t over = 0;
    for (size_t j = i + 1; j-- > 0;) {
      const bool in_work = backward_[j].first <= backward_[i].last;
      if (in_work || over++ < kReductions) live += backward_[j].unit->whole_bytes();
    }
    peak = std::max(peak, live);
  }
  return peak;
}

}  // namespace lockstep
