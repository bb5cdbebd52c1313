#include "strategies/testing/flipping.h"

#include <cstddef>
#include <utility>
#include <vector>

#include "strategies/testing/wrapped_strategy.h"

namespace lockstep {
namespace {

void FlipBit(const Tensor& tensor, uint64_t bit) {
  if (tensor.bytes() == 0) return;
  bit %= static_cast<uint64_t>(tensor.bytes()) * 8;
  tensor.raw()[bit / 8] ^= std::byte{1} << (bit % 8);
}

// Flips a bit of one of the tensors before others see it; counts them all.
class FlippingProbe final : public PassProbe {
 public:
  FlippingProbe(PassProbe* next, const Flip* flip, uint64_t tensors)
      : next_(next), flip_(flip), tensors_(tensors) {}

  void Observe(const ProbedTensor& tensor, const Tensor& value) override {
    if (IsFloating(value.dtype())) {
      if (flip_ != nullptr && seen_ == flip_->tensor % tensors_) FlipBit(value, flip_->bit);
      ++seen_;
    }
    if (next_ != nullptr) next_->Observe(tensor, value);
  }

  uint64_t seen() const { return seen_; }

 private:
  PassProbe* next_;
  const Flip* flip_;  // null: no bit flips
  const uint64_t tensors_;
  uint64_t seen_ = 0;
};

class Flipping final : public WrappedStrategy {
 public:
  Flipping(std::unique_ptr<Strategy> strategy, Rank& rank, const Flip& flip, uint64_t tensors,
           std::shared_ptr<uint64_t[]> counts)
      : WrappedStrategy(std::move(strategy)),
        rank_(rank),
        flip_(flip),
        tensors_(tensors),
        counts_(std::move(counts)) {}

  StepResult TrainStep(int64_t step, BatchSource& batches) override {
    const int time = step == last_step_ ? ++times_ : times_ = 0;
    last_step_ = step;
    const bool flips = counts_ == nullptr && rank_.rank == flip_.rank && step == flip_.step &&
                       (flip_.time < 0 || time == flip_.time);
    const auto flips_at = [&](Flip::Target target) { return flips && flip_.target == target; };
    if (flips_at(Flip::Target::kRestingState)) FlipState();
    PassProbe* const search = rank_.search;
    const Flip* const flip = flips_at(Flip::Target::kPass) ? &flip_ : nullptr;
    FlippingProbe probe(search, flip, tensors_);
    if (flip != nullptr || counts_ != nullptr) rank_.search = &probe;
    const StepResult result = WrappedStrategy::TrainStep(step, batches);
    rank_.search = search;
    if (counts_ != nullptr) counts_[static_cast<size_t>(rank_.rank)] = probe.seen();
    if (flips_at(Flip::Target::kState)) FlipState();
    return result;
  }

  EvaluationSums Evaluate(const Batch& batch) override {
    const bool flips = flip_.target == Flip::Target::kIdleState && rank_.rank == flip_.rank &&
                       last_step_ == flip_.step;
    if (flips && !std::exchange(flipped_, true)) FlipState();
    return WrappedStrategy::Evaluate(batch);
  }

 private:
  // The first tensor from flip_.tensor on that this rank holds a part of.
  void FlipState() {
    const std::vector<StateTensor> state = State();
    for (size_t i = 0; i < state.size(); ++i) {
      const Tensor& tensor = state[(flip_.tensor + i) % state.size()].tensor;
      if (tensor.elements() == 0) continue;
      FlipBit(tensor, flip_.bit);
      return;
    }
  }

  Rank& rank_;
  const Flip flip_;
  const uint64_t tensors_;
  const std::shared_ptr<uint64_t[]> counts_;  // null: nothing is counted
  int64_t last_step_ = -1;
  int times_ = 0;
  bool flipped_ = false;  // in a validation
};

StrategyDefinition WithFlipping(StrategyDefinition strategy, const Flip& flip, uint64_t tensors,
                                const std::shared_ptr<uint64_t[]>& counts) {
  return Wrapped(std::move(strategy), [=](std::unique_ptr<Strategy> made, Rank& rank) {
    return std::make_unique<Flipping>(std::move(made), rank, flip, tensors, counts);
  });
}

}  // namespace

StrategyDefinition WithFlip(StrategyDefinition strategy, const Flip& flip, uint64_t tensors) {
  return WithFlipping(std::move(strategy), flip, tensors, nullptr);
}

StrategyDefinition WithCount(StrategyDefinition strategy, std::shared_ptr<uint64_t[]> tensors) {
  return WithFlipping(std::move(strategy), {}, 0, tensors);
}

}  // namespace lockstep
