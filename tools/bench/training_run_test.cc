#include "tools/bench/training_run.h"

#include <string>

#include "absl/types/span.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "strategies/single/single.h"
#include "tools/bench/random_data.h"

namespace lockstep {
namespace {

using ::testing::HasSubstr;

TEST(MeasureInTurnTest, SaysWhichRoundHasBegunAndTimesIt) {
  Contender ours = {.strategy = SingleStrategy(), .threads = 1};
  ::testing::internal::CaptureStderr();
  const absl::Status status =
      MeasureInTurn(SmallGptWorkload(), {.count = 2, .steps = 1}, absl::MakeSpan(&ours, 1));
  const std::string said = ::testing::internal::GetCapturedStderr();
  ASSERT_TRUE(status.ok()) << status;
  EXPECT_THAT(said, HasSubstr(SmallGptWorkload().name + ", round 1 of 2\n"));
  EXPECT_THAT(said, HasSubstr(SmallGptWorkload().name + ", round 2 of 2\n"));
  EXPECT_GT(ours.best.gflops, 0);
}

TEST(MeasureInTurnTest, CallsARoundWhatTheCallerDoes) {
  Contender ours = {.strategy = SingleStrategy(), .threads = 1};
  ::testing::internal::CaptureStderr();
  const absl::Status status = MeasureInTurn(
      SmallGptWorkload(), {.steps = 1, .progress = "beside 3 others"}, absl::MakeSpan(&ours, 1));
  const std::string said = ::testing::internal::GetCapturedStderr();
  ASSERT_TRUE(status.ok()) << status;
  EXPECT_THAT(said, HasSubstr("bench: beside 3 others\n"));
}

// The configured data have 2^40 samples, these 2^20: a sampler of the others would draw what there
// is not.
TEST(MeasureInTurnTest, TrainsOnAnotherDataset) {
  TrainingWorkload workload = SmallGptWorkload();
  workload.dataset = RandomTokens(16, 64);
  Contender ours = {.strategy = SingleStrategy(), .threads = 1};
  ::testing::internal::CaptureStderr();
  const absl::Status status = MeasureInTurn(workload, {.steps = 1}, absl::MakeSpan(&ours, 1));
  ::testing::internal::GetCapturedStderr();
  ASSERT_TRUE(status.ok()) << status;
  EXPECT_GT(ours.best.gflops, 0);
}

TEST(MeasureInTurnTest, RefusesNoRoundAndNoStep) {
  Contender ours = {.strategy = SingleStrategy()};
  const auto problem = [&](const Rounds& rounds) {
    return std::string(
        MeasureInTurn(SmallGptWorkload(), rounds, absl::MakeSpan(&ours, 1)).message());
  };
  EXPECT_THAT(problem({.count = 0}), HasSubstr("--rounds"));
  EXPECT_THAT(problem({.steps = 0}), HasSubstr("--steps"));
}

}  // namespace
}  // namespace lockstep
