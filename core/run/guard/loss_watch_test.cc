#include "core/run/guard/loss_watch.h"

#include <cstdint>
#include <limits>
#include <string>

#include "absl/strings/str_cat.h"
#include "core/base/file.h"
#include "core/comm/launch.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace lockstep {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr char kNoFolder[] = "/nowhere/checkpoints";
constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

Settings WithFactor(double factor) {
  Settings settings;
  settings.guard.loss_jump = factor;
  return settings;
}

bool IsStopped(LossWatch& watch, double loss) { return !watch.Take(6, {.loss = loss}).ok(); }

TEST(LossWatchTest, AJumpIsSeenOnceThereIsAMean) {
  const Settings settings = WithFactor(2);
  LossWatch watch(settings, kNoFolder);
  EXPECT_FALSE(IsStopped(watch, 1));
  EXPECT_FALSE(IsStopped(watch, 100));  // too early to say
  LossWatch later(settings, kNoFolder);
  for (int i = 0; i < 4; ++i) EXPECT_FALSE(IsStopped(later, 3));
  EXPECT_EQ(later.mean(), 3);
  EXPECT_FALSE(IsStopped(later, 6));  // no more than twice the mean
  EXPECT_TRUE(IsStopped(later, 7.3));
  EXPECT_THAT(std::string(later.Take(6, {.loss = 7.3}).message()),  // has not moved the mean
              AllOf(HasSubstr("step 7: the loss jumps to 7.3, more than guard.loss_jump = 2 times"),
                    HasSubstr("--out: --set train.steps=7 --set schedule.total_steps="),
                    HasSubstr(" --set probe.first_step=6 --set probe.steps=1")));
}

TEST(LossWatchTest, TheMeanForgetsWhatIsLongAgo) {
  const Settings settings = WithFactor(2);
  LossWatch watch(settings, kNoFolder);
  for (int i = 0; i < 100; ++i) EXPECT_FALSE(IsStopped(watch, 8));
  for (int i = 0; i < 16; ++i) EXPECT_FALSE(IsStopped(watch, 1));
  EXPECT_EQ(watch.mean(), 1);
  EXPECT_TRUE(IsStopped(watch, 2.1));
}

TEST(LossWatchTest, WithoutAFactorNothingJumps) {
  const Settings settings = WithFactor(0);
  LossWatch watch(settings, kNoFolder);
  for (int i = 0; i < 10; ++i) EXPECT_FALSE(IsStopped(watch, 1));
  EXPECT_FALSE(IsStopped(watch, 1e30));
}

TEST(LossWatchTest, ALossThatIsNotFiniteStopsUnlessItMayGoOn) {
  Settings settings = WithFactor(0);
  LossWatch watch(settings, kNoFolder);
  EXPECT_THAT(std::string(watch.Take(2, {.loss = kNan}).message()),
              HasSubstr("step 3: the loss is nan"));
  EXPECT_THAT(std::string(watch.Take(2, {.loss = 1, .gradient_norm = kNan}).message()),
              HasSubstr("step 3: the loss is finite, and the norm of the gradients is not"));
  EXPECT_TRUE(watch.Take(2, {.loss = 1, .gradient_norm = kNan, .skipped = true}).ok());
  for (const double loss : {kNan, std::numeric_limits<double>::infinity()}) {
    const StepResult result = {.loss = loss, .gradient_norm = kNan, .skipped = true};
    EXPECT_THAT(std::string(watch.Take(2, result).message()),
                AllOf(HasSubstr(absl::StrCat("step 3: the loss is ", loss)),
                      HasSubstr(" --set probe.first_step=2 --set probe.steps=1")));
  }
  settings.on_nan = OnNan::kContinue;
  EXPECT_FALSE(IsStopped(watch, kNan));
  EXPECT_TRUE(watch.Take(2, {.loss = kNan, .skipped = true}).ok());
}

// As if there had been no pause: without what was skipped, or not finite, or is behind the step.
TEST(LossWatchTest, AnAttemptThatGoesOnComparesWithTheLossesBefore) {
  const std::string metrics = testing::TempDir() + "/metrics.jsonl";
  ASSERT_TRUE(WriteFileAtomically(metrics,
                                  "{\"step\": 0, \"loss\": 3, \"gradient_norm\": 1}\n"
                                  "{\"step\": 1, \"loss\": 3, \"gradient_norm\": 1}\n"
                                  "{\"step\": 1, \"validation_loss\": 50}\n"
                                  "{\"step\": 2, \"loss\": null, \"gradient_norm\": 1}\n"
                                  "{\"step\": 3, \"loss\": 50, \"gradient_norm\": null}\n"
                                  "{\"step\": 4, \"loss\": 50, \"gradient_norm\": 1,"
                                  " \"skipped\": true}\n"
                                  "{\"step\": 5, \"loss\": 3, \"gradient_norm\": 1,"
                                  " \"skipped\": false}\n"
                                  "{\"step\": 6, \"loss\": 3, \"gradient_norm\": 1}\n"
                                  "{\"step\": 7, \"loss\": 50, \"gradient_norm\": 1}\n")
                  .ok());
  const Settings settings = WithFactor(2);
  const absl::Status status = RunRanks(3, {}, [&](RankHandle& handle) -> absl::Status {
    LossWatch watch(settings, kNoFolder);
    const auto resume = [&](const std::string& path, int64_t steps) {
      return watch.Resume(handle.rank() == 0 ? path : "none", steps, handle.comm());
    };
    absl::Status resumed = resume(metrics, 7);
    EXPECT_EQ(watch.mean(), 3);
    EXPECT_TRUE(IsStopped(watch, 6.5));
    resumed.Update(resume(metrics, 6));
    EXPECT_EQ(watch.mean(), 0);  // too few
    resumed.Update(resume(metrics + ".missing", 7));
    EXPECT_FALSE(IsStopped(watch, 100));
    return resumed;
  });
  EXPECT_TRUE(status.ok()) << status;
}

TEST(LossWatchTest, RanksThatHaveSeenNoLossGetThoseOfTheFirst) {
  for (const int count : {0, 3, 16}) {
    const Settings settings = WithFactor(2);
    const absl::Status status = RunRanks(3, {}, [&](RankHandle& handle) -> absl::Status {
      LossWatch watch(settings, kNoFolder);
      for (int i = 0; i < count && handle.rank() == 0; ++i) EXPECT_FALSE(IsStopped(watch, 3));
      const absl::Status shared = watch.Share(handle.comm());
      for (int i = count; i < 4; ++i) EXPECT_FALSE(IsStopped(watch, 3));
      EXPECT_EQ(watch.mean(), 3);
      EXPECT_TRUE(IsStopped(watch, 6.5));
      return shared;
    });
    EXPECT_TRUE(status.ok()) << status;
  }
}

}  // namespace
}  // namespace lockstep
