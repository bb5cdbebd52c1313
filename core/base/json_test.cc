#include "core/base/json.h"

#include <string>

#include "gtest/gtest.h"

namespace lockstep {
namespace {

std::string Lists(int depth) { return std::string(depth, '[') + std::string(depth, ']'); }

TEST(JsonTest, NestingCountsWhatIsInNoString) {
  EXPECT_EQ(NestingOf("1"), 0);
  EXPECT_EQ(NestingOf(R"({"a": [1, {"b": 2}], "c": [[]]})"), 3);
  EXPECT_EQ(NestingOf(R"(["[[", "\"[[", "\\", [1]])"), 2);
  EXPECT_EQ(NestingOf("]]]["), 0);
  EXPECT_EQ(NestingOf(R"(["[[)"), 1);
}

TEST(JsonTest, WhatIsTooDeepIsDiscarded) {
  EXPECT_TRUE(ParseJson(Lists(kDeepestJson)).is_array());
  EXPECT_TRUE(ParseJson(Lists(kDeepestJson + 1)).is_discarded());
  EXPECT_TRUE(ParseJson<nlohmann::ordered_json>(Lists(1'000'000)).is_discarded());
  EXPECT_TRUE(ParseJson("{").is_discarded());
  EXPECT_TRUE(ParseJson("").is_discarded());
  EXPECT_TRUE(ParseJson("1e999").is_discarded());
}

}  // namespace
}  // namespace lockstep
