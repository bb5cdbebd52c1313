#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include "core/run/strategy/strategy.h"

namespace lockstep {

// A strategy in which something else happens, for tests: what is not overridden is the wrapped
// one's.
class WrappedStrategy : public Strategy {
 public:
  explicit WrappedStrategy(std::unique_ptr<Strategy> strategy) : strategy_(std::move(strategy)) {}

  std::vector<int64_t> micro_batches() const override { return strategy_->micro_batches(); }
  StepResult TrainStep(int64_t step, BatchSource& batches) override {
    return strategy_->TrainStep(step, batches);
  }
  EvaluationSums Evaluate(const Batch& batch) override { return strategy_->Evaluate(batch); }
  const ModelLayout& layout() const override { return strategy_->layout(); }
  std::vector<StateTensor> State() override { return strategy_->State(); }
  void Restored() override { strategy_->Restored(); }
  CostPrediction Predict() const override { return strategy_->Predict(); }

 private:
  std::unique_ptr<Strategy> strategy_;
};

// `definition`, whose strategy `wrap` wraps on each rank.
inline StrategyDefinition Wrapped(
    StrategyDefinition definition,
    const std::function<std::unique_ptr<Strategy>(std::unique_ptr<Strategy>, Rank&)>& wrap) {
  definition.make = [make = definition.make,
                     wrap](StrategyInputs inputs) -> std::unique_ptr<Strategy> {
    Rank& rank = inputs.rank;
    return wrap(make(std::move(inputs)), rank);
  };
  return definition;
}

}  // namespace lockstep
