#include "core/optim/learning_rate_schedule.h"

#include "gtest/gtest.h"

namespace lockstep {
namespace {

TEST(ScheduleTest, WarmUpIsLinearAndNeverZero) {
  const LearningRateSchedule schedule = {
      .kind = LearningRateSchedule::Kind::kConstant, .peak = 1.0, .warmup_steps = 4};
  EXPECT_DOUBLE_EQ(schedule.RateAt(0), 0.2);
  EXPECT_DOUBLE_EQ(schedule.RateAt(3), 0.8);
  EXPECT_DOUBLE_EQ(schedule.RateAt(4), 1.0);
  EXPECT_DOUBLE_EQ(schedule.RateAt(1000), 1.0);
}

TEST(ScheduleTest, CosineGoesFromPeakToFloor) {
  const LearningRateSchedule schedule = {.kind = LearningRateSchedule::Kind::kCosine,
                                         .peak = 1.0,
                                         .floor = 0.1,
                                         .warmup_steps = 10,
                                         .total_steps = 110};
  EXPECT_DOUBLE_EQ(schedule.RateAt(10), 1.0);
  EXPECT_NEAR(schedule.RateAt(60), 0.55, 1e-12);
  EXPECT_NEAR(schedule.RateAt(35), 0.1 + 0.9 * 0.8535533905932737, 1e-12);  // (1 + cos(pi/4)) / 2
  EXPECT_DOUBLE_EQ(schedule.RateAt(110), 0.1);
  EXPECT_DOUBLE_EQ(schedule.RateAt(500), 0.1);
}

TEST(ScheduleTest, LinearGoesFromPeakToFloor) {
  const LearningRateSchedule schedule = {.kind = LearningRateSchedule::Kind::kLinear,
                                         .peak = 1.0,
                                         .floor = 0.2,
                                         .warmup_steps = 10,
                                         .total_steps = 110};
  EXPECT_DOUBLE_EQ(schedule.RateAt(10), 1.0);
  EXPECT_DOUBLE_EQ(schedule.RateAt(35), 0.8);
  EXPECT_DOUBLE_EQ(schedule.RateAt(110), 0.2);
  EXPECT_DOUBLE_EQ(schedule.RateAt(500), 0.2);
}

TEST(ScheduleTest, WarmupStableDecayFallsAtTheEnd) {
  const LearningRateSchedule schedule = {.kind = LearningRateSchedule::Kind::kWarmupStableDecay,
                                         .peak = 1.0,
                                         .floor = 0.2,
                                         .warmup_steps = 10,
                                         .total_steps = 110,
                                         .decay_steps = 20};
  EXPECT_DOUBLE_EQ(schedule.RateAt(0), 1.0 / 11);
  EXPECT_DOUBLE_EQ(schedule.RateAt(10), 1.0);
  EXPECT_DOUBLE_EQ(schedule.RateAt(90), 1.0);
  EXPECT_DOUBLE_EQ(schedule.RateAt(105), 0.4);
  EXPECT_DOUBLE_EQ(schedule.RateAt(110), 0.2);
  EXPECT_DOUBLE_EQ(schedule.RateAt(500), 0.2);
}

TEST(ScheduleTest, StepsFallAtTheirMilestones) {
  const LearningRateSchedule schedule = {.kind = LearningRateSchedule::Kind::kStep,
                                         .peak = 1.0,
                                         .milestones = {10, 20},
                                         .factor = 0.5};
  EXPECT_DOUBLE_EQ(schedule.RateAt(9), 1.0);
  EXPECT_DOUBLE_EQ(schedule.RateAt(10), 0.5);
  EXPECT_DOUBLE_EQ(schedule.RateAt(19), 0.5);
  EXPECT_DOUBLE_EQ(schedule.RateAt(20), 0.25);
}

}  // namespace
}  // namespace lockstep
