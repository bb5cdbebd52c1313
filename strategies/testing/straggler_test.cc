// A rank that is slower than the others is named, with the part of the step.

#include <algorithm>
#include <chrono>
#include <fstream>
#include <memory>
#include <sstream>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "core/report/step_timer.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "models/models.h"
#include "strategies/fsdp/fsdp.h"
#include "strategies/testing/run_strategy.h"
#include "strategies/testing/wrapped_strategy.h"

namespace lockstep {
namespace {

using ::testing::HasSubstr;

// A rank whose updates take a fifth of a second more, far more than all else of a step.
class SlowUpdates final : public WrappedStrategy {
 public:
  SlowUpdates(std::unique_ptr<Strategy> strategy, StepTimer& timer)
      : WrappedStrategy(std::move(strategy)), timer_(timer) {}

  StepResult TrainStep(int64_t step, BatchSource& batches) override {
    const StepResult result = WrappedStrategy::TrainStep(step, batches);
    const StepTimer::Scope scope(timer_, Phase::kOptimizer);
    std::this_thread::sleep_for(std::chrono::milliseconds(200));
    return result;
  }

 private:
  StepTimer& timer_;
};

StrategyDefinition WithSlowRank(int slow) {
  return Wrapped(FsdpStrategy(),
                 [slow](std::unique_ptr<Strategy> made, Rank& rank) -> std::unique_ptr<Strategy> {
                   if (rank.rank != slow) return made;
                   return std::make_unique<SlowUpdates>(std::move(made), rank.timer);
                 });
}

std::string ContentsOf(const std::string& path) {
  std::ostringstream text;
  text << std::ifstream(path).rdbuf();
  return text.str();
}

TEST(StragglerTest, IsNamedInMetricsAndReport) {
  const Assignments assignments = {"mesh.dp=3", "guard.straggler_factor=2",
                                   "guard.straggler_steps=2"};
  const std::vector<RankReport> reports =
      RunStrategy(WithSlowRank(1), MakeModel, SmallGptConfig(), assignments);
  for (const RankReport& report : reports) {
    // On a busy machine another may be slow as well.
    const auto slow = std::find_if(report.slow_ranks.begin(), report.slow_ranks.end(),
                                   [](const auto& rank) { return rank.worst.rank == 1; });
    ASSERT_NE(slow, report.slow_ranks.end());
    EXPECT_EQ(slow->windows, 2);
    EXPECT_EQ(slow->worst.part, Phase::kOptimizer);
    EXPECT_GT(slow->worst.factor, 2);
  }
  EXPECT_THAT(ContentsOf(RunFolder() + "/metrics.jsonl"),
              HasSubstr(R"("straggler":{"rank":1,"part":"optimizer")"));
}

TEST(StragglerTest, NobodyIsNamedUnlessTheRunAsks) {
  const std::vector<RankReport> reports =
      RunStrategy(WithSlowRank(1), MakeModel, SmallGptConfig(), {"mesh.dp=3"});
  EXPECT_TRUE(reports[0].slow_ranks.empty());
}

}  // namespace
}  // namespace lockstep
