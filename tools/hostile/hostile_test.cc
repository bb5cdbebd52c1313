#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tools/hostile/kept_seeds.h"
#include "tools/hostile/tries.h"

namespace lockstep {
namespace {

// Shards of the test: each makes its part of the tries.
constexpr uint64_t kParts = 4;
constexpr int64_t kTries = 2000;

std::vector<std::string> Failures(const std::vector<HostileTry>& tries, const std::string& name) {
  const auto failures =
      MakeTries(tries, {.folder = absl::StrCat(testing::TempDir(), "/hostile_", name)});
  EXPECT_TRUE(failures.ok()) << failures.status();
  std::vector<std::string> texts;
  if (!failures.ok()) return texts;
  for (const HostileFailure& failure : *failures) {
    texts.push_back(
        absl::StrCat(failure.attempt.target, " ", failure.attempt.seed, ": ", failure.what));
  }
  return texts;
}

class HostileTest : public testing::TestWithParam<uint64_t> {};

TEST_P(HostileTest, TriesEndWell) {
  const auto tries = PlanTries(/*seed=*/GetParam() + 1, kTries / kParts);
  ASSERT_TRUE(tries.ok()) << tries.status();
  EXPECT_THAT(Failures(*tries, absl::StrCat(GetParam())), testing::IsEmpty());
}

INSTANTIATE_TEST_SUITE_P(Parts, HostileTest, testing::Range(uint64_t{0}, kParts));

TEST(KeptSeedsTest, WhatOnceFailedEndsWell) {
  std::vector<HostileTry> tries;
  for (const KeptSeed& kept : kKeptSeeds) tries.push_back({kept.target, kept.seed});
  EXPECT_THAT(Failures(tries, "kept"), testing::IsEmpty());
}

}  // namespace
}  // namespace lockstep
