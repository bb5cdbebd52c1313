#include "core/optim/loss_scale.h"

#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace lockstep {
namespace {

using Kind = LossScaleOptions::Kind;
using ::testing::AllOf;
using ::testing::HasSubstr;

TEST(LossScaleTest, DefaultsAreThoseOfPyTorch) {
  const LossScaleOptions options = {.kind = Kind::kDynamic};
  EXPECT_EQ(options.initial, 65536);
  EXPECT_EQ(options.growth, 2);
  EXPECT_EQ(options.backoff, 0.5);
  EXPECT_EQ(options.interval, 2000);
}

TEST(LossScaleTest, GrowsAfterExactlyTheIntervalAndStartsToCountAgain) {
  LossScale scale({.kind = Kind::kDynamic, .initial = 8, .growth = 4, .interval = 3});
  const double expected[] = {8, 8, 32, 32, 32, 128, 128};  // after each step
  for (const double after : expected) {
    ASSERT_TRUE(scale.Update(false).ok());
    EXPECT_EQ(scale.scale(), after);
  }
}

TEST(LossScaleTest, BacksOffAtTheStepThatOverflowsAndCountsAnew) {
  LossScale scale({.kind = Kind::kDynamic, .initial = 64, .interval = 3});
  const bool overflows[] = {false, false, true, false, false, false, true, true};
  const double expected[] = {64, 64, 32, 32, 32, 64, 32, 16};
  for (int i = 0; i < 8; ++i) {
    ASSERT_TRUE(scale.Update(overflows[i]).ok());
    EXPECT_EQ(scale.scale(), expected[i]) << "after step " << i;
  }
  EXPECT_EQ(scale.skipped(), 3);
}

TEST(LossScaleTest, BelowOneIsAnErrorThatSaysSo) {
  LossScale scale({.kind = Kind::kDynamic, .initial = 2});
  EXPECT_TRUE(scale.Update(true).ok());
  EXPECT_EQ(scale.scale(), 1);
  const absl::Status status = scale.Update(true);
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(status.message()),
              AllOf(HasSubstr("0.5, below 1"), HasSubstr("2 skipped steps"),
                    HasSubstr("schedule.learning_rate")));
}

TEST(LossScaleTest, StaysWithinFp32) {
  LossScale scale({.kind = Kind::kDynamic, .initial = 0x1p127, .interval = 1});
  EXPECT_TRUE(scale.Update(false).ok());
  EXPECT_EQ(scale.scale(), 0x1p127);
}

TEST(LossScaleTest, AStaticScaleStaysButCountsWhatItSkips) {
  LossScale scale({.kind = Kind::kStatic, .initial = 16, .interval = 1});
  for (const bool overflowed : {false, true, true, true, true, true, true}) {
    EXPECT_TRUE(scale.Update(overflowed).ok());
    EXPECT_EQ(scale.scale(), 16);
  }
  EXPECT_EQ(scale.skipped(), 6);
}

TEST(LossScaleTest, NoneIsOneAndSkipsNothing) {
  LossScale scale({.kind = Kind::kNone, .initial = 16});
  EXPECT_TRUE(scale.Update(true).ok());
  EXPECT_EQ(scale.scale(), 1);
  EXPECT_EQ(scale.skipped(), 0);
}

TEST(LossScaleTest, GoesOnFromARestoredState) {
  const LossScaleOptions options = {.kind = Kind::kDynamic, .initial = 64, .interval = 3};
  LossScale first(options), second(options);
  for (const bool overflowed : {true, false, false}) ASSERT_TRUE(first.Update(overflowed).ok());
  second.Restore(first.state());
  EXPECT_EQ(second.scale(), 32);
  EXPECT_EQ(second.skipped(), 1);
  ASSERT_TRUE(second.Update(false).ok());
  EXPECT_EQ(second.scale(), 64) << "the third good step in a row";
}

}  // namespace
}  // namespace lockstep
