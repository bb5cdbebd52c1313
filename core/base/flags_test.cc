#include "core/base/flags.h"

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/flags/flag.h"
#include "absl/flags/reflection.h"
#include "core/base/status.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

ABSL_FLAG(bool, all, false, "everything");
ABSL_FLAG(int, ranks, 4, "how many ranks");
ABSL_FLAG(double, transfer, 0.5, "time of a message");
ABSL_FLAG(std::string, out, "", "where to write");
ABSL_FLAG(std::optional<int>, micro_batches, std::nullopt, "how many; default twice the ranks");
ABSL_FLAG(lockstep::RepeatedFlag, set, {}, "KEY=VALUE; repeatable");

namespace lockstep {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

using Words = ProgramFlags::Words;

class FlagsTest : public testing::Test {
 protected:
  static ProgramFlags Program(Words words) {
    return {.usage = "Tests flags.", .files = {__FILE__}, .words = words};
  }
  static absl::StatusOr<ParsedFlags> Parse(const std::vector<std::string>& arguments,
                                           Words words = Words::kAny) {
    return ParseFlags(arguments, Program(words));
  }
  static std::string Problem(const std::vector<std::string>& arguments, Words words = Words::kAny) {
    return std::string(Parse(arguments, words).status().message());
  }
  // Output and exit code of a program.
  static int Run(std::vector<std::string> arguments,
                 const std::function<absl::StatusOr<int>(const std::vector<std::string>&)>& run) {
    std::vector<char*> argv = {const_cast<char*>("program")};
    for (std::string& argument : arguments) argv.push_back(argument.data());
    return RunProgram(static_cast<int>(argv.size()), argv.data(), Program(Words::kAny), run);
  }

  absl::FlagSaver saver_;
};

TEST_F(FlagsTest, NumbersAreFinite) {
  for (const char* number : {"nan", "inf", "-inf", "1e999"}) {
    EXPECT_THAT(Problem({"--transfer", number}), HasSubstr("--transfer")) << number;
  }
}

TEST_F(FlagsTest, SortsWordsSwitchesAndValues) {
  const auto parsed = Parse({"one", "--ranks", "5", "--all", "two", "--out=a=b"});
  ASSERT_TRUE(parsed.ok()) << parsed.status();
  EXPECT_THAT(parsed->words, ElementsAre("one", "two"));
  EXPECT_FALSE(parsed->help);
  EXPECT_TRUE(absl::GetFlag(FLAGS_all));
  EXPECT_EQ(absl::GetFlag(FLAGS_ranks), 5);
  EXPECT_EQ(absl::GetFlag(FLAGS_out), "a=b");
  EXPECT_EQ(absl::GetFlag(FLAGS_micro_batches), std::nullopt);
  ASSERT_TRUE(Parse({"--all=false", "--micro_batches=0", "--ranks=6", "--ranks=7"}).ok());
  EXPECT_FALSE(absl::GetFlag(FLAGS_all));
  EXPECT_EQ(absl::GetFlag(FLAGS_micro_batches), 0);
  EXPECT_EQ(absl::GetFlag(FLAGS_ranks), 7);
}

TEST_F(FlagsTest, AValueMayBeginWithADash) {
  ASSERT_TRUE(Parse({"--transfer", "-1.5", "--out", "--all", "--ranks=-2"}).ok());
  EXPECT_EQ(absl::GetFlag(FLAGS_transfer), -1.5);
  EXPECT_EQ(absl::GetFlag(FLAGS_out), "--all");
  EXPECT_FALSE(absl::GetFlag(FLAGS_all));
  EXPECT_EQ(absl::GetFlag(FLAGS_ranks), -2);
}

TEST_F(FlagsTest, ARepeatedFlagKeepsAllValuesInOrder) {
  const std::string lines = "lora.layers=[\"a\",\n\"b\"]";
  ASSERT_TRUE(Parse({"--set", "b=1", "--set=a=2,3", "--set", "", "--set", lines}).ok());
  EXPECT_THAT(absl::GetFlag(FLAGS_set).values, ElementsAre("b=1", "a=2,3", "", lines));
}

TEST_F(FlagsTest, WhatFollowsTwoDashesAreWords) {
  EXPECT_THAT(Parse({"a", "--", "--all", "--", "b"})->words, ElementsAre("a", "--all", "--", "b"));
  EXPECT_FALSE(absl::GetFlag(FLAGS_all));
}

TEST_F(FlagsTest, WhatIsForAnotherProgramStaysInOrder) {
  const auto parsed =
      Parse({"first", "--", "--seed", "3", "--out=here", "--rank=2", "last"}, Words::kPassedOn);
  ASSERT_TRUE(parsed.ok()) << parsed.status();
  EXPECT_THAT(parsed->words, ElementsAre("first", "--", "--seed", "3", "--rank=2", "last"));
  EXPECT_EQ(absl::GetFlag(FLAGS_out), "here");
}

TEST_F(FlagsTest, RefusesWhatItDoesNotKnow) {
  EXPECT_THAT(Problem({"--rank", "2"}), HasSubstr("unknown argument '--rank'; did you mean "
                                                  "--ranks? --help lists what there is"));
  EXPECT_THAT(Problem({"--micro-batches", "2"}), HasSubstr("did you mean --micro_batches?"));
  EXPECT_THAT(Problem({"-ranks", "2"}), HasSubstr("did you mean --ranks?"));
  EXPECT_THAT(Problem({"--hepl"}), HasSubstr("did you mean --help?"));
  EXPECT_THAT(Problem({"--ranks"}), HasSubstr("--ranks needs a value behind it"));
  EXPECT_THAT(Problem({"--all=1"}), HasSubstr("--all takes no value"));
  EXPECT_THAT(Problem({"--help=1"}), HasSubstr("--help takes no value"));
  EXPECT_THAT(Problem({"one"}, Words::kNone), HasSubstr("'one' belongs to no option"));
}

// Abseil has flags of its own, and another program in the same binary has others.
TEST_F(FlagsTest, OnlyTheFilesFlagsAreTheProgramsOwn) {
  EXPECT_THAT(Problem({"--flagfile=x"}), HasSubstr("unknown argument '--flagfile'"));
  const ProgramFlags other = {.usage = "Has none.", .files = {"other.cc"}};
  EXPECT_THAT(std::string(ParseFlags({"--ranks=2"}, other).status().message()),
              HasSubstr("did you mean --help?"));
  EXPECT_EQ(FlagsHelp(other), "Has none.\n\n  --help  this text\n");
}

TEST_F(FlagsTest, RefusesWhatIsNoNumber) {
  for (const char* wrong : {"two", "1.5", "", "99999999999"}) {
    EXPECT_EQ(Problem({"--ranks", wrong}),
              std::string("--ranks ") + wrong + ": give a whole number");
  }
  EXPECT_EQ(Problem({"--micro_batches=x"}), "--micro_batches x: give a whole number");
  EXPECT_EQ(Problem({"--micro_batches="}), "--micro_batches : give a whole number");
  EXPECT_EQ(Problem({"--transfer=x"}), "--transfer x: give a number");
  EXPECT_EQ(CheckRange("ranks", 1, 1, 8), absl::OkStatus());
  EXPECT_EQ(CheckRange("ranks", 8, 1, 8), absl::OkStatus());
  for (const int64_t wrong : {int64_t{0}, int64_t{9}}) {
    EXPECT_THAT(std::string(CheckRange("ranks", wrong, 1, 8).message()),
                HasSubstr("give a whole number from 1 to 8"));
  }
}

TEST_F(FlagsTest, HelpListsEachFlagWithItsDefault) {
  EXPECT_TRUE(Parse({"--ranks=3", "--help"})->help);
  EXPECT_EQ(FlagsHelp(Program(Words::kAny)),
            "Tests flags.\n\n"
            "  --all              everything\n"
            "  --help             this text\n"
            "  --micro_batches N  how many; default twice the ranks\n"
            "  --out VALUE        where to write\n"
            "  --ranks N          how many ranks; default 4\n"
            "  --set VALUE        KEY=VALUE; repeatable\n"
            "  --transfer X       time of a message; default 0.5\n");
}

TEST_F(FlagsTest, AProgramEndsWithItsExitCodeOrOneMessage) {
  const auto message = [](const std::vector<std::string>& arguments, const auto& run) {
    testing::internal::CaptureStdout();
    testing::internal::CaptureStderr();
    EXPECT_EQ(Run(arguments, run), 1);
    EXPECT_EQ(testing::internal::GetCapturedStdout(), "");
    return testing::internal::GetCapturedStderr();
  };
  std::vector<std::string> words;
  const auto run = [&words](const std::vector<std::string>& given) {
    words = given;
    return absl::StatusOr<int>(130);
  };
  EXPECT_EQ(Run({"a", "--all"}, run), 130);
  EXPECT_THAT(words, ElementsAre("a"));
  words.clear();
  EXPECT_THAT(message({"--rank=1"}, run), AllOf(HasSubstr("--ranks?"), Not(HasSubstr("INVALID"))));
  EXPECT_THAT(words, IsEmpty());
  const absl::Status fault = absl::AbortedError("at fault");
  EXPECT_THAT(message({}, [&](const auto&) { return absl::StatusOr<int>(fault); }),
              HasSubstr("at fault"));
  EXPECT_THAT(
      message({}, [&](const auto&) -> absl::StatusOr<int> { throw StatusException(fault); }),
      HasSubstr("at fault"));
  testing::internal::CaptureStdout();
  EXPECT_EQ(Run({"--help"}, run), 0);
  EXPECT_THAT(testing::internal::GetCapturedStdout(), HasSubstr("how many ranks; default 4"));
  EXPECT_THAT(words, IsEmpty());
}

}  // namespace
}  // namespace lockstep
