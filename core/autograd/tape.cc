#include "core/autograd/tape.h"

#include <algorithm>  // std::all_of
#include <memory>
#include <utility>

#include "glog/logging.h"

namespace lockstep {

Variable Tape::Result(Tensor value, bool needs_gradient) {
  const bool has_slot = recording_ != Recording::kOff && needs_gradient;
  return Variable(std::move(value), has_slot ? std::make_shared<GradientSlot>() : nullptr);
}

void Tape::Record(const Variable& output, std::vector<Leaf*> leaves, Step step) {
  if (!output.needs_gradient()) return;
  std::erase_if(leaves, [](const Leaf* leaf) { return leaf == nullptr || !leaf->trainable; });
  for (const Leaf* leaf : leaves) {
    if (!counts_uses_) break;
    ++uses_[leaf];
    ++pending_[leaf];
  }
  if (!recording()) return;
  steps_.push_back(
      [this, slot = output.gradient, leaves = std::move(leaves), step = std::move(step)] {
        if (slot->empty()) {
          CountDown(leaves);
        } else {
          step(slot->Take());
        }
      });
}

void Tape::RecordAlways(std::function<void()> step) {
  if (recording()) steps_.push_back(std::move(step));
}

Variables Tape::Recompute(Variables inputs, const Region& first, Region again) {
  CHECK(recording());
  recording_ = Recording::kForgetful;
  Variables outputs = first(inputs);
  recording_ = Recording::kOn;
  std::vector<std::shared_ptr<GradientSlot>> slots;
  for (const Variable& output : outputs) slots.push_back(output.gradient);
  if (std::all_of(slots.begin(), slots.end(), [](const auto& slot) { return slot == nullptr; })) {
    return outputs;
  }
  // Steps are a stack: backward goes on with those that the second run appends.
  steps_.push_back([this, inputs = std::move(inputs), slots = std::move(slots),
                    again = std::move(again)]() mutable {
    counts_uses_ = false;
    const Variables recomputed = again(std::move(inputs));
    counts_uses_ = true;
    for (size_t i = 0; i < slots.size(); ++i) {
      if (slots[i] == nullptr || slots[i]->empty()) continue;
      recomputed[i].gradient->Add(kernels_, slots[i]->Take());
    }
  });
  return outputs;
}

void Tape::ComputeGradients(std::vector<Leaf*> leaves, std::function<void(Half)> compute) {
  std::erase_if(leaves, [](const Leaf* leaf) { return leaf == nullptr || !leaf->trainable; });
  const bool defer = extent_ == Extent::kInputsOnly && !leaves.empty();
  compute({.inputs = true, .weights = !defer && !leaves.empty()});
  if (defer) {
    deferred_.push_back({std::move(leaves), std::move(compute)});
  } else {
    CountDown(leaves);
  }
}

void Tape::CountDown(const std::vector<Leaf*>& leaves) {
  for (Leaf* leaf : leaves) {
    if (leaf == nullptr || !leaf->trainable) continue;
    auto pending = pending_.find(leaf);
    CHECK(pending != pending_.end()) << "a gradient for a leaf that forward did not use";
    if (--pending->second == 0 && leaf_ready_) leaf_ready_(*leaf);
  }
}

int Tape::Uses(const Leaf& leaf) const {
  auto uses = uses_.find(&leaf);
  return uses == uses_.end() ? 0 : uses->second;
}

void Tape::Backward(std::vector<Seed> seeds, Extent extent) {
  CHECK(recording()) << "backward needs a tape that records";
  extent_ = extent;
  for (Seed& seed : seeds) {
    CHECK(seed.output.needs_gradient()) << "nothing that is trained led to this output";
    seed.output.gradient->Add(kernels_, std::move(seed.gradient));
  }
  seeds.clear();
  while (!steps_.empty()) {
    std::function<void()> step = std::move(steps_.back());
    steps_.pop_back();
    step();
  }
}

void Tape::RunDeferred() {
  for (DeferredWeights& work : std::exchange(deferred_, {})) {
    work.compute({.inputs = false, .weights = true});
    work.compute = nullptr;  // gives back what the closure kept
    CountDown(work.leaves);
  }
}

}  // namespace lockstep
