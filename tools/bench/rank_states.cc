#include "tools/bench/rank_states.h"

#include <cstddef>
#include <utility>

#include "core/checkpoint/state_tensor.h"
#include "strategies/testing/wrapped_strategy.h"

namespace lockstep {
namespace {

class ToldState final : public WrappedStrategy {
 public:
  ToldState(std::unique_ptr<Strategy> strategy, int rank, std::shared_ptr<RankStates> states)
      : WrappedStrategy(std::move(strategy)), rank_(static_cast<size_t>(rank)), states_(states) {
    states_->strategies[rank_] = this;
  }

  StepResult TrainStep(int64_t step, BatchSource& batches) override {
    const StepResult result = WrappedStrategy::TrainStep(step, batches);
    std::string& bytes = states_->bytes[rank_];
    bytes.clear();
    for (const StateTensor& part : State()) {
      bytes.append(reinterpret_cast<const char*>(part.tensor.raw()),
                   static_cast<size_t>(part.tensor.bytes()));
    }
    return result;
  }

 private:
  const size_t rank_;
  const std::shared_ptr<RankStates> states_;
};

}  // namespace

StrategyDefinition Telling(StrategyDefinition strategy, const std::shared_ptr<RankStates>& states) {
  return Wrapped(std::move(strategy), [states](std::unique_ptr<Strategy> made, Rank& rank) {
    return std::make_unique<ToldState>(std::move(made), rank.rank, states);
  });
}

}  // namespace lockstep
