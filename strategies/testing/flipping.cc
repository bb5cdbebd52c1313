#include "strategies/testing/flipping.h"

#include <utility>
#include <vector>

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

class Flipping final : public Strategy {
 public:
  Flipping(std::unique_ptr<Strategy> strategy, Rank& rank, const Flip& flip, uint64_t tensors,
           std::shared_ptr<uint64_t[]> counts)
      : strategy_(std::move(strategy)),
        rank_(rank),
        flip_(flip),
        tensors_(tensors),
        counts_(std::move(counts)) {}

  std::vector<int64_t> micro_batches() const override { return strategy_->micro_batches(); }

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
    const StepResult result = strategy_->TrainStep(step, batches);
    rank_.search = search;
    if (counts_ != nullptr) counts_[static_cast<size_t>(rank_.rank)] = probe.seen();
    if (flips_at(Flip::Target::kState)) FlipState();
    return result;
  }

  EvaluationSums Evaluate(const Batch& batch) override {
    const bool flips = flip_.target == Flip::Target::kIdleState && rank_.rank == flip_.rank &&
                       last_step_ == flip_.step;
    if (flips && !std::exchange(flipped_, true)) FlipState();
    return strategy_->Evaluate(batch);
  }
  const ModelLayout& layout() const override { return strategy_->layout(); }
  std::vector<StateTensor> State() override { return strategy_->State(); }
  void Restored() override { strategy_->Restored(); }
  CostPrediction Predict() const override { return strategy_->Predict(); }

 private:
  // The first tensor from flip_.tensor on that this rank holds a part of.
  void FlipState() {
    const std::vector<StateTensor> state = strategy_->State();
    for (size_t i = 0; i < state.size(); ++i) {
      const Tensor& tensor = state[(flip_.tensor + i) % state.size()].tensor;
      if (tensor.elements() == 0) continue;
      FlipBit(tensor, flip_.bit);
      return;
    }
  }

  std::unique_ptr<Strategy> strategy_;
  Rank& rank_;
  const Flip flip_;
  const uint64_t tensors_;
  const std::shared_ptr<uint64_t[]> counts_;  // null: nothing is counted
  int64_t last_step_ = -1;
  int times_ = 0;
  bool flipped_ = false;  // in a validation
};

StrategyDefinition Wrapped(StrategyDefinition strategy, const Flip& flip, uint64_t tensors,
                           std::shared_ptr<uint64_t[]> counts) {
  strategy.make = [make = strategy.make, flip, tensors,
                   counts](StrategyInputs inputs) -> std::unique_ptr<Strategy> {
    Rank& rank = inputs.rank;
    return std::make_unique<Flipping>(make(std::move(inputs)), rank, flip, tensors, counts);
  };
  return strategy;
}

}  // namespace

StrategyDefinition WithFlip(StrategyDefinition strategy, const Flip& flip, uint64_t tensors) {
  return Wrapped(std::move(strategy), flip, tensors, nullptr);
}

StrategyDefinition WithCount(StrategyDefinition strategy, std::shared_ptr<uint64_t[]> tensors) {
  return Wrapped(std::move(strategy), {}, 0, std::move(tensors));
}

}  // namespace lockstep
