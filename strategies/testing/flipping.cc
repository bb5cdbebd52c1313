#include "strategies/testing/flipping.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "glog/logging.h"
#include "strategies/testing/wrapped_strategy.h"

namespace lockstep {
namespace {

// Whether a FlippingProbe flips it.
bool IsProbed(Flip::Target target) {
  using Target = Flip::Target;
  constexpr std::array kProbed = {Target::kPass, Target::kGradient, Target::kSeenPass,
                                  Target::kSeenGradient, Target::kStatistics};
  return std::ranges::count(kProbed, target) != 0;
}

// Flips a bit of one of the tensors of a pass, of its parameters' gradients, or of its batch
// statistics, before or after others see it; counts them all.
class FlippingProbe final : public PassProbe {
 public:
  // `flip`: null: no bit flips.
  FlippingProbe(PassProbe* next, Flip::Target target, const Flip* flip, uint64_t tensors)
      : next_(next), target_(target), flip_(flip), tensors_(tensors) {}

  void Observe(const ProbedTensor& tensor, const Tensor& value) override {
    if (target_ == Flip::Target::kPass) Pass(value);
    if (next_ != nullptr) next_->Observe(tensor, value);
    if (target_ == Flip::Target::kSeenPass) Pass(value);
  }
  void ObserveGradient(const std::string& parameter, const Tensor& gradient) override {
    if (target_ == Flip::Target::kGradient) Pass(gradient);
    if (next_ != nullptr) next_->ObserveGradient(parameter, gradient);
    if (target_ == Flip::Target::kSeenGradient) Pass(gradient);
  }
  void ObserveHandedOver(const std::string& what, const Tensor& value) override {
    const bool is_of_statistics = what == "the batch statistics";
    if (target_ == Flip::Target::kStatistics && is_of_statistics) Pass(value);
    if (next_ != nullptr) next_->ObserveHandedOver(what, value);
  }

  void ObserveNumbersHandedOver(const std::string& what, std::span<const double> numbers) override {
    if (next_ != nullptr) next_->ObserveNumbersHandedOver(what, numbers);
  }

  uint64_t seen() const { return seen_; }

 private:
  void Pass(const Tensor& value) {
    if (!value.defined() || !IsFloating(value.dtype())) return;
    if (flip_ != nullptr && seen_ == flip_->tensor % tensors_) FlipBit(value, flip_->bit);
    ++seen_;
  }

  PassProbe* next_;
  const Flip::Target target_;
  const Flip* flip_;
  const uint64_t tensors_;
  uint64_t seen_ = 0;
};

// How often a rank has trained its last step, in whatever role: steps are repeated by strategies
// that are made for it. An entry is its rank's own.
struct Times {
  int64_t step = -1;
  int times = 0;
};
constexpr int kMostRanks = 64;

// What all strategies that are made of one definition share.
struct Fault {
  Flip flip;
  uint64_t tensors = 0;                          // of the target, in a step
  std::shared_ptr<uint64_t[]> counts = nullptr;  // null: nothing is counted
  std::shared_ptr<CallFlips> calls = nullptr;    // null: calls are let be
  std::array<Times, kMostRanks> times = {};
};

CallFlips::Which WhichOf(Flip::Target target) {
  if (target == Flip::Target::kSent) return CallFlips::Which::kSent;
  if (target == Flip::Target::kReceived) return CallFlips::Which::kReceived;
  return CallFlips::Which::kNone;
}

class Flipping final : public WrappedStrategy {
 public:
  Flipping(std::unique_ptr<Strategy> strategy, Rank& rank, std::shared_ptr<Fault> fault)
      : WrappedStrategy(std::move(strategy)),
        rank_(rank),
        fault_(std::move(fault)),
        processor_(rank.mesh.world().members()[static_cast<size_t>(rank.rank)]) {
    CHECK_LT(processor_, kMostRanks);
  }

  StepResult TrainStep(int64_t step, BatchSource& batches) override {
    Times& own = fault_->times[static_cast<size_t>(processor_)];
    own = {.step = step, .times = step == own.step ? own.times + 1 : 0};
    last_step_ = step;
    const Flip& flip = fault_->flip;
    const bool counts = fault_->counts != nullptr;
    const bool is_step = step >= flip.step && step - flip.step < flip.steps;
    const bool flips =
        !counts && processor_ == flip.rank && is_step && (flip.time < 0 || own.times == flip.time);
    const auto is_on = [&](Flip::Target target) {
      return (flips || counts) && flip.target == target;
    };
    if (flips && flip.target == Flip::Target::kRestingState) FlipState();
    PassProbe* const search = rank_.search;
    FlippingProbe probe(search, flip.target, counts ? nullptr : &flip, fault_->tensors);
    if (is_on(flip.target) && IsProbed(flip.target)) rank_.search = &probe;
    const CallFlips::Which which =
        is_on(flip.target) ? WhichOf(flip.target) : CallFlips::Which::kNone;
    if (which != CallFlips::Which::kNone) {
      const auto number = counts ? -1 : static_cast<int64_t>(flip.tensor % fault_->tensors);
      fault_->calls->Arm(processor_, which, number, flip.bit);
    }
    const StepResult result = WrappedStrategy::TrainStep(step, batches);
    rank_.search = search;
    uint64_t seen = probe.seen();
    if (which != CallFlips::Which::kNone) {
      seen = static_cast<uint64_t>(fault_->calls->Disarm(processor_));
    }
    if (counts) fault_->counts[static_cast<size_t>(processor_)] = seen;
    if (flips && flip.target == Flip::Target::kState) FlipState();
    return result;
  }

  EvaluationSums Evaluate(const Batch& batch) override {
    const Flip& flip = fault_->flip;
    const bool flips = flip.target == Flip::Target::kIdleState && processor_ == flip.rank &&
                       last_step_ == flip.step;
    if (flips && !std::exchange(flipped_, true)) FlipState();
    return WrappedStrategy::Evaluate(batch);
  }

 private:
  // The first tensor from flip.tensor on that this rank holds a part of.
  void FlipState() {
    const std::vector<StateTensor> state = State();
    for (size_t i = 0; i < state.size(); ++i) {
      const Tensor& tensor = state[(fault_->flip.tensor + i) % state.size()].tensor;
      if (tensor.elements() == 0) continue;
      FlipBit(tensor, fault_->flip.bit);
      return;
    }
  }

  Rank& rank_;
  const std::shared_ptr<Fault> fault_;
  const int processor_;  // the rank in the world, in whatever role it trains
  int64_t last_step_ = -1;
  bool flipped_ = false;  // in a validation
};

StrategyDefinition WithFault(StrategyDefinition strategy, Fault fault) {
  return Wrapped(std::move(strategy), [shared = std::make_shared<Fault>(std::move(fault))](
                                          std::unique_ptr<Strategy> made, Rank& rank) {
    return std::make_unique<Flipping>(std::move(made), rank, shared);
  });
}

}  // namespace

StrategyDefinition WithFlip(StrategyDefinition strategy, const Flip& flip, uint64_t tensors,
                            std::shared_ptr<CallFlips> calls) {
  return WithFault(std::move(strategy),
                   {.flip = flip, .tensors = tensors, .calls = std::move(calls)});
}

StrategyDefinition WithCount(StrategyDefinition strategy, Flip::Target target,
                             std::shared_ptr<uint64_t[]> tensors,
                             std::shared_ptr<CallFlips> calls) {
  return WithFault(
      std::move(strategy),
      {.flip = {.target = target}, .counts = std::move(tensors), .calls = std::move(calls)});
}

}  // namespace lockstep
