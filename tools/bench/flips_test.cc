#include "tools/bench/flips.h"

#include "gtest/gtest.h"

namespace lockstep {
namespace {

TEST(FlipsTest, WhatChangedTheResultIsSeenInItsStepAndNothingElse) {
  const auto counts = CountFlips(24, 1, ::testing::TempDir(), [](const FlipCounts&) {});
  ASSERT_TRUE(counts.ok()) << counts.status();
  SCOPED_TRACE(ToString(*counts));
  EXPECT_EQ(counts->missed, 0);
  EXPECT_EQ(counts->misnamed, 0);
  EXPECT_EQ(counts->false_alarms, 0);
  EXPECT_GT(counts->changed, 12);
  EXPECT_GT(counts->named, 8);
}

}  // namespace
}  // namespace lockstep
