#include "tools/arguments/arguments.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace lockstep {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

absl::StatusOr<Arguments> Parse(const std::vector<std::string>& arguments) {
  return Arguments::Parse(arguments, {{"--all", FlagKind::kSwitch}, {"--ranks", FlagKind::kValue}});
}

std::string Problem(const std::vector<std::string>& arguments) {
  return std::string(Parse(arguments).status().message());
}

TEST(ArgumentsTest, SortsWordsSwitchesAndValues) {
  const auto arguments = Parse({"one", "--ranks", "4", "--all", "two"});
  ASSERT_TRUE(arguments.ok()) << arguments.status();
  EXPECT_THAT(arguments->words(), ElementsAre("one", "two"));
  EXPECT_TRUE(arguments->Has("--all"));
  EXPECT_EQ(arguments->Value("--ranks"), "4");
  EXPECT_EQ(Parse({"--ranks=5"})->Value("--ranks"), "5");
  EXPECT_EQ(Parse({})->Value("--ranks", "6"), "6");
}

TEST(ArgumentsTest, ReadsWholeNumbersInTheirBounds) {
  EXPECT_EQ(Parse({"--ranks=5"})->Whole("--ranks", 1, 8, 2).value(), 5);
  EXPECT_EQ(Parse({})->Whole("--ranks", 1, 8, 2).value(), 2);
  for (const char* wrong : {"--ranks=0", "--ranks=9", "--ranks=two", "--ranks=1.5", "--ranks="}) {
    EXPECT_THAT(std::string(Parse({wrong})->Whole("--ranks", 1, 8, 2).status().message()),
                HasSubstr("give a whole number from 1 to 8"));
  }
}

TEST(ArgumentsTest, RefusesWhatItDoesNotKnow) {
  EXPECT_THAT(Problem({"--rank", "2"}), HasSubstr("did you mean --ranks?"));
  EXPECT_THAT(Problem({"--ranks"}), HasSubstr("--ranks needs a value behind it"));
  EXPECT_THAT(Problem({"--all=1"}), HasSubstr("--all takes no value"));
}

}  // namespace
}  // namespace lockstep
