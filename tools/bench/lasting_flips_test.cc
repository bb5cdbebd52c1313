#include "tools/bench/lasting_flips.h"

#include <map>
#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace lockstep {
namespace {

using ::testing::IsEmpty;

TEST(LastingFlipsTest, WhatLastsUntilTheNextCheckIsSeenByItAndNothingElse) {
  constexpr int64_t kOfKind = 16;
  const auto counts = CountLastingFlips({.flips = 3 * kOfKind, .folder = ::testing::TempDir()});
  ASSERT_TRUE(counts.ok()) << counts.status();
  const FlipCounts total = Total(*counts);
  EXPECT_THAT(total.wrong, IsEmpty());
  EXPECT_EQ(total.failures(), 0) << ToString(total);
  EXPECT_EQ(total.flips, 3 * kOfKind);
  const std::map<std::string, FlipCounts> kinds(counts->begin(), counts->end());
  for (const char* kind :
       {"processors gone wrong", "parted replicas", "shards beside their copies"}) {
    const FlipCounts& its = kinds.at(kind);
    SCOPED_TRACE(std::string(kind) + ": " + ToString(its));
    EXPECT_GT(its.changed, kOfKind / 2);
    EXPECT_GE(its.seen, its.changed);
    EXPECT_GT(its.named, kOfKind / 4);
    EXPECT_EQ(its.gone_on, its.seen);
    EXPECT_EQ(its.quiet_runs, 2);
  }
  // Each of them is another bit than the copy has, and one rank alone has it.
  EXPECT_EQ(kinds.at("shards beside their copies").named, kOfKind);
}

}  // namespace
}  // namespace lockstep
