// The whole program, as a shell would run it.

#include <filesystem>
#include <string>
#include <utility>
#include <vector>

#include "core/base/file.h"
#include "core/base/subprocess.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace lockstep {
namespace {

namespace fs = std::filesystem;

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::StartsWith;

class CollectivesTest : public testing::Test {
 protected:
  CollectivesTest() : folder_(testing::TempDir() + "/collectives_test") {
    fs::remove_all(folder_);
    fs::create_directories(folder_);
  }

  // From a shell in `folder_`.
  ProcessResult Run(std::vector<std::string> arguments) {
    arguments.insert(arguments.begin(), "tools/collectives/collectives");
    const auto result = RunProcess(
        {.arguments = std::move(arguments), .environment = {{"BUILD_WORKING_DIRECTORY", folder_}}});
    EXPECT_TRUE(result.ok()) << result.status();
    return result.ok() ? *result : ProcessResult{};
  }

  // The message of a run that must fail.
  std::string Fail(const std::vector<std::string>& arguments) {
    const ProcessResult result = Run(arguments);
    EXPECT_EQ(result.exit_code, 1) << result.Describe();
    EXPECT_EQ(result.out, "");
    EXPECT_TRUE(fs::is_empty(folder_));
    return result.err;
  }

  std::string Written(const std::string& name) {
    const auto contents = ReadFile(folder_ + "/" + name);
    EXPECT_TRUE(contents.ok()) << contents.status();
    return contents.ok() ? *contents : "";
  }

  std::string folder_;
};

TEST_F(CollectivesTest, PrintsAndDraws) {
  const ProcessResult result = Run({"all_reduce", "--ranks", "2"});
  EXPECT_TRUE(result.ok()) << result.err;
  EXPECT_THAT(result.out, HasSubstr("before\n"
                                    "[0] data = tensor([1.])\n"
                                    "[1] data = tensor([2.])\n"
                                    "after\n"
                                    "[0] data = tensor([3.])\n"
                                    "[1] data = tensor([3.])\n"
                                    "checked: a serial computation gives the same\n"));
  EXPECT_THAT(result.out, HasSubstr("all_reduce (f32 x 1, sum, \"demo\")"));
  EXPECT_THAT(Written("collectives/all_reduce.svg"), StartsWith("<svg"));
}

TEST_F(CollectivesTest, RanksBringTheValuesThatAreGiven) {
  EXPECT_THAT(Run({"all_reduce", "--values", "4,1,-2,2"}).out,
              HasSubstr("before\n"
                        "[0] data = tensor([4.])\n"
                        "[1] data = tensor([1.])\n"
                        "[2] data = tensor([-2.])\n"
                        "[3] data = tensor([2.])\n"
                        "after\n"
                        "[0] data = tensor([5.])\n"));
  // A product of 2^24, the largest that is exact in any order.
  EXPECT_THAT(Run({"all_reduce", "--op", "product", "--values", "64,64,64,64"}).out,
              HasSubstr("[0] data = tensor([1.67772e+07])\n"));
}

TEST_F(CollectivesTest, GroupsRunTheOperationByThemselves) {
  EXPECT_THAT(Run({"all_reduce", "--groups", "0,1,0,1"}).out,
              HasSubstr("after\n"
                        "[0] data = tensor([4.])\n"
                        "[1] data = tensor([6.])\n"
                        "[2] data = tensor([4.])\n"
                        "[3] data = tensor([6.])\n"));
}

TEST_F(CollectivesTest, PartsAreListed) {
  EXPECT_THAT(
      Run({"gather", "--ranks=3", "--root=1", "--uneven"}).out,
      AllOf(HasSubstr("[0] data = empty\n"
                      "[1] data = [tensor([0.]), tensor([1., 1.1]), tensor([2., 2.1, 2.2])]\n"
                      "[2] data = empty\n"),
            HasSubstr("(f32 x 6 (1+2+3), root 1, \"demo\")")));
}

TEST_F(CollectivesTest, WritesWhereItIsTold) {
  EXPECT_TRUE(Run({"barrier", "--out", "here/picture.svg"}).ok());
  EXPECT_THAT(Written("here/picture.svg"), StartsWith("<svg"));
  EXPECT_TRUE(Run({"send", "--out", folder_ + "/there"}).ok());
  EXPECT_THAT(Written("there/send_recv.svg"), StartsWith("<svg"));
}

TEST_F(CollectivesTest, AllMakesAPage) {
  const ProcessResult result =
      Run({"--all", "--ranks", "3", "--op", "max", "--count", "2", "--uneven"});
  EXPECT_TRUE(result.ok()) << result.err;
  EXPECT_THAT(result.out, AllOf(HasSubstr("all_reduce (max), 3 ranks: checked"),
                                HasSubstr("gather, 3 ranks, root 0, uneven parts: checked")));
  EXPECT_THAT(Written("collectives/collectives.html"), StartsWith("<!DOCTYPE html>"));
}

TEST_F(CollectivesTest, FilesOfOthersAreLeftAlone) {
  ASSERT_TRUE(WriteFileAtomically(folder_ + "/thesis.svg", "years of work").ok());
  const ProcessResult result = Run({"all_reduce", "--out", "thesis.svg"});
  EXPECT_EQ(result.exit_code, 1);
  EXPECT_THAT(result.err, HasSubstr("is there already and is not an SVG picture"));
  EXPECT_EQ(Written("thesis.svg"), "years of work");
}

TEST_F(CollectivesTest, HelpNamesEverything) {
  const ProcessResult result = Run({"--help"});
  EXPECT_TRUE(result.ok());
  EXPECT_THAT(result.out, AllOf(HasSubstr("reduce_scatter"), HasSubstr("--uneven")));
}

TEST_F(CollectivesTest, WrongNamesSuggestTheNearest) {
  EXPECT_THAT(Fail({"all_redce"}), HasSubstr("no operation 'all_redce'; did you mean all_reduce?"));
  EXPECT_THAT(Fail({"all-gather"}), HasSubstr("did you mean all_gather?"));
  EXPECT_THAT(Fail({"all_reduce", "--rank", "2"}), HasSubstr("did you mean --ranks?"));
  EXPECT_THAT(Fail({"all_reduce", "--op", "avrage"}), HasSubstr("did you mean average?"));
}

TEST_F(CollectivesTest, WrongValuesAreRefused) {
  EXPECT_THAT(Fail({}), HasSubstr("give one operation"));
  EXPECT_THAT(Fail({"gather", "scatter"}), HasSubstr("there are 2"));
  EXPECT_THAT(Fail({"--all", "gather"}), HasSubstr("leave out gather"));
  EXPECT_THAT(Fail({"gather", "--ranks", "17"}), HasSubstr("whole number from 1 to 16"));
  EXPECT_THAT(Fail({"gather", "--ranks", "two"}), HasSubstr("--ranks two"));
  EXPECT_THAT(Fail({"gather", "--ranks"}), HasSubstr("--ranks needs a value"));
  EXPECT_THAT(Fail({"gather", "--root", "4"}), HasSubstr("from 0 to 3"));
  EXPECT_THAT(Fail({"gather", "--count", "0"}), HasSubstr("from 1 to 8"));
  EXPECT_THAT(Fail({"gather", "--uneven=1"}), HasSubstr("--uneven takes no value"));
}

TEST_F(CollectivesTest, OptionsWithoutUseAreRefused) {
  EXPECT_THAT(Fail({"gather", "--op", "sum"}), HasSubstr("gather reduces nothing"));
  EXPECT_THAT(Fail({"all_reduce", "--root", "0"}), HasSubstr("all_reduce has no root"));
  EXPECT_THAT(Fail({"all_to_all", "--uneven"}), HasSubstr("no parts that may differ"));
  EXPECT_THAT(Fail({"barrier", "--count", "2"}), HasSubstr("barrier carries no data"));
  for (const std::string operation : {"barrier", "all_to_all"}) {
    EXPECT_THAT(Fail({operation, "--values", "1,2,3,4"}),
                HasSubstr("--values: " + operation + " takes no number of each rank"));
  }
}

TEST_F(CollectivesTest, ValuesAndGroupsAreANumberForEachRank) {
  for (const std::string flag : {"values", "groups"}) {
    EXPECT_THAT(Fail({"all_reduce", "--" + flag, "1,2,3"}),
                HasSubstr("--" + flag + " has 3 numbers, but there are 4 ranks"));
    EXPECT_THAT(Fail({"all_reduce", "--" + flag, "1,2,3,4", "--ranks", "2"}),
                HasSubstr("--" + flag + " has 4 numbers, but there are 2 ranks"));
    for (const std::string text : {"x", "1.5", ""}) {
      EXPECT_THAT(Fail({"all_reduce", "--" + flag, "1,2,3," + text}),
                  HasSubstr("--" + flag + ": '" + text + "' is no whole number from "));
    }
  }
  for (const std::string text : {"1001", "-1001"}) {
    EXPECT_THAT(Fail({"all_reduce", "--values", "1,2,3," + text}),
                HasSubstr("'" + text + "' is no whole number from -1000 to 1000"));
  }
  for (const std::string text : {"16", "-1"}) {
    EXPECT_THAT(Fail({"all_reduce", "--groups", "1,2,3," + text}),
                HasSubstr("'" + text + "' is no whole number from 0 to 15"));
  }
  // A root counts inside its group, of which the smallest has one rank.
  EXPECT_THAT(Fail({"gather", "--groups", "0,0,0,1", "--root", "1"}), HasSubstr("from 0 to 0"));
}

TEST_F(CollectivesTest, ProductsThatAreNotExactAreRefused) {
  EXPECT_THAT(Fail({"all_reduce", "--op", "product", "--values", "64,64,-64,65"}),
              HasSubstr("which fp32 has not exactly; give smaller ones"));
}

TEST_F(CollectivesTest, AFolderThatCannotBeMadeIsNamed) {
  ASSERT_TRUE(WriteFileAtomically(folder_ + "/file", "in the way").ok());
  const ProcessResult result = Run({"barrier", "--out", "file/folder"});
  EXPECT_EQ(result.exit_code, 1);
  EXPECT_THAT(result.err, HasSubstr("collectives_test/file\": a file of that name is in the way"));
}

}  // namespace
}  // namespace lockstep
