#include "core/run/restart_limit.h"

#include <optional>

#include "gtest/gtest.h"

namespace lockstep {
namespace {

TEST(RestartLimitTest, IsPassedByLossesInARowWithoutANewCheckpoint) {
  RestartLimit limit(/*most=*/1, std::nullopt);
  EXPECT_FALSE(limit.IsPassed(std::nullopt));
  EXPECT_FALSE(limit.IsPassed(0));  // a first checkpoint
  EXPECT_FALSE(limit.IsPassed(0));
  EXPECT_FALSE(limit.IsPassed(5));
  EXPECT_FALSE(limit.IsPassed(3));  // the newest is gone: nothing new
  EXPECT_TRUE(limit.IsPassed(5));
  EXPECT_EQ(limit.in_vain(), 2);
}

}  // namespace
}  // namespace lockstep
