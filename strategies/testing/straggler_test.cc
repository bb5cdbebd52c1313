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

#include "core/base/file.h"
#include "core/config/command_line.h"
#include "core/report/step_timer.h"
#include "core/report/summary.h"
#include "core/run/leg/training_run.h"
#include "core/run/trainer.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "models/models.h"
#include "nlohmann/json.hpp"
#include "strategies/fsdp/fsdp.h"
#include "strategies/testing/run_strategy.h"
#include "strategies/testing/wrapped_strategy.h"

namespace lockstep {
namespace {

using ::testing::AllOf;
using ::testing::ContainsRegex;
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
  const std::string config = testing::TempDir() + "/workload.toml";
  ASSERT_TRUE(WriteFileAtomically(config, SmallGptConfig()).ok());
  CommandLine command_line;
  command_line.configs = {config};
  command_line.out = testing::TempDir() + "/named";
  command_line.assignments = {"mesh.dp=3", "guard.straggler_factor=2", "guard.straggler_steps=2"};
  const TrainingRun run = PrepareRun(command_line, WithSlowRank(1), MakeModel).value();
  const std::vector<RankReport> reports = TrainRanks(run).value();
  for (const RankReport& report : reports) {
    // On a busy machine another may be slow as well.
    const auto slow = std::find_if(report.slow_ranks.begin(), report.slow_ranks.end(),
                                   [](const auto& rank) { return rank.worst.rank == 1; });
    ASSERT_NE(slow, report.slow_ranks.end());
    EXPECT_EQ(slow->windows, 2);
    EXPECT_EQ(slow->worst.part, Phase::kOptimizer);
    EXPECT_GT(slow->worst.factor, 2);
  }
  EXPECT_THAT(ContentsOf(command_line.out + "/metrics.jsonl"),
              HasSubstr(R"("straggler":{"rank":1,"part":"optimizer")"));
  testing::internal::CaptureStdout();
  ASSERT_TRUE(WriteRunSummary(run, reports).ok());
  EXPECT_THAT(testing::internal::GetCapturedStdout(),
              ContainsRegex("rank 1 was slow 2 times: at step [0-9]+ [0-9.]+ times the time of "
                            "others with the same work, .* longer, most of it in optimizer"));
  const auto summary = nlohmann::json::parse(ContentsOf(command_line.out + "/summary.json"));
  const auto& named = summary["stragglers"];
  const auto one =
      std::find_if(named.begin(), named.end(), [](const auto& slow) { return slow["rank"] == 1; });
  ASSERT_NE(one, named.end());
  EXPECT_EQ((*one)["part"], "optimizer");
  EXPECT_EQ((*one)["windows"], 2);
  EXPECT_GT((*one)["largest_factor"], 2);
}

// What the ranks of an earlier attempt have found is not forgotten when the run goes on.
TEST(StragglerTest, ThoseOfEarlierAttemptsAreNamedToo) {
  const std::string config = testing::TempDir() + "/workload.toml";
  ASSERT_TRUE(WriteFileAtomically(config, SmallGptConfig()).ok());
  CommandLine command_line;
  command_line.configs = {config};
  command_line.out = testing::TempDir() + "/attempts";
  command_line.assignments = {"mesh.dp=3", "guard.straggler_factor=2", "guard.straggler_steps=2",
                              "train.steps=2"};
  ASSERT_TRUE(TrainRanks(PrepareRun(command_line, WithSlowRank(1), MakeModel).value()).ok());
  // Another rank is slow now.
  command_line.resume = true;
  command_line.assignments.back() = "train.steps=4";
  const TrainingRun run = PrepareRun(command_line, WithSlowRank(2), MakeModel).value();
  const std::vector<RankReport> reports = TrainRanks(run).value();
  testing::internal::CaptureStdout();
  ASSERT_TRUE(WriteRunSummary(run, reports).ok());
  EXPECT_THAT(testing::internal::GetCapturedStdout(),
              AllOf(HasSubstr("rank 1 was slow"), HasSubstr("rank 2 was slow")));
  const auto summary = nlohmann::json::parse(ContentsOf(command_line.out + "/summary.json"));
  const auto& named = summary["stragglers"];
  for (const int rank : {1, 2}) {
    const auto one = std::find_if(named.begin(), named.end(),
                                  [rank](const auto& slow) { return slow["rank"] == rank; });
    ASSERT_NE(one, named.end()) << named;
    EXPECT_EQ((*one)["part"], "optimizer");
    EXPECT_EQ((*one)["at_step"], rank == 1 ? 1 : 3);
  }
}

TEST(StragglerTest, NobodyIsNamedUnlessTheRunAsks) {
  const std::vector<RankReport> reports =
      RunStrategy(WithSlowRank(1), MakeModel, SmallGptConfig(), {"mesh.dp=3"});
  EXPECT_TRUE(reports[0].slow_ranks.empty());
}

}  // namespace
}  // namespace lockstep
