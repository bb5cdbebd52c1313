#include "tools/bench/flips.h"

#include <map>
#include <string>

#include "gtest/gtest.h"

namespace lockstep {
namespace {

class FlipsTest : public testing::TestWithParam<std::string> {};

TEST_P(FlipsTest, WhatChangedTheResultIsSeenInItsStepAndNothingElse) {
  const auto counts = CountFlips({.flips = 50, .folder = ::testing::TempDir()}, GetParam());
  ASSERT_TRUE(counts.ok()) << counts.status();
  const FlipCounts total = Total(*counts);
  SCOPED_TRACE(ToString(total));
  EXPECT_EQ(total.missed, 0);
  EXPECT_EQ(total.misnamed, 0);
  EXPECT_EQ(total.unnamed, 0);
  EXPECT_EQ(total.false_alarms, 0);
  EXPECT_EQ(total.quiet_runs, 3);
  EXPECT_GT(total.changed, 25);
  EXPECT_GT(total.named, 8);
  const std::map<std::string, FlipCounts> kinds(counts->begin(), counts->end());
  EXPECT_EQ(kinds.size(), 5u);
  EXPECT_EQ(kinds.at("checkpoints").flips, 5);
  // Seen before ranks sum it.
  EXPECT_GT(kinds.at("gradients of parameters").named, 0);
  for (const char* kind : {"gradients of parameters", "messages between ranks", "checkpoints"}) {
    EXPECT_GT(kinds.at(kind).seen, 0) << kind;
  }
}

INSTANTIATE_TEST_SUITE_P(RepeatOn, FlipsTest, testing::Values("same_rank", "other_rank"),
                         [](const auto& parameter) { return parameter.param; });

}  // namespace
}  // namespace lockstep
