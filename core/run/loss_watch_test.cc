#include "core/run/loss_watch.h"

#include "gtest/gtest.h"

namespace lockstep {
namespace {

TEST(LossWatchTest, AJumpIsSeenOnceThereIsAMean) {
  LossWatch watch(2);
  EXPECT_FALSE(watch.Jumps(1));
  EXPECT_FALSE(watch.Jumps(100));  // too early to say
  LossWatch later(2);
  for (int i = 0; i < 4; ++i) EXPECT_FALSE(later.Jumps(3));
  EXPECT_EQ(later.mean(), 3);
  EXPECT_FALSE(later.Jumps(6));  // no more than twice the mean
  EXPECT_TRUE(later.Jumps(7.3));
  EXPECT_TRUE(later.Jumps(7.3));  // has not moved the mean
}

TEST(LossWatchTest, TheMeanForgetsWhatIsLongAgo) {
  LossWatch watch(2);
  for (int i = 0; i < 100; ++i) EXPECT_FALSE(watch.Jumps(8));
  for (int i = 0; i < 16; ++i) EXPECT_FALSE(watch.Jumps(1));
  EXPECT_EQ(watch.mean(), 1);
  EXPECT_TRUE(watch.Jumps(2.1));
}

TEST(LossWatchTest, WithoutAFactorNothingJumps) {
  LossWatch watch(0);
  for (int i = 0; i < 10; ++i) EXPECT_FALSE(watch.Jumps(1));
  EXPECT_FALSE(watch.Jumps(1e30));
}

}  // namespace
}  // namespace lockstep
