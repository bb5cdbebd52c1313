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

class ScheduleProgramTest : public testing::Test {
 protected:
  ScheduleProgramTest() : folder_(testing::TempDir() + "/schedule_test") {
    fs::remove_all(folder_);
    fs::create_directories(folder_);
  }

  // From a shell in `folder_`.
  ProcessResult Run(std::vector<std::string> arguments) {
    arguments.insert(arguments.begin(), "tools/schedule/schedule");
    const auto result = RunProcess(
        {.arguments = std::move(arguments), .environment = {{"BUILD_WORKING_DIRECTORY", folder_}}});
    EXPECT_TRUE(result.ok()) << result.status();
    return result.ok() ? *result : ProcessResult{};
  }

  // The message of a run that must fail, and leave nothing behind.
  std::string Fail(const std::vector<std::string>& arguments) {
    const ProcessResult result = Run(arguments);
    EXPECT_EQ(result.exit_code, 1) << result.Describe();
    EXPECT_EQ(result.out, "");
    EXPECT_FALSE(fs::exists(folder_ + "/schedule"));
    return result.err;
  }

  std::string FailCsv(const std::string& csv) {
    EXPECT_TRUE(WriteFileAtomically(folder_ + "/mine.csv", csv).ok());
    return Fail({"--csv", "mine.csv"});
  }

  std::string Written(const std::string& name) {
    const auto contents = ReadFile(folder_ + "/" + name);
    EXPECT_TRUE(contents.ok()) << contents.status();
    return contents.ok() ? *contents : "";
  }

  std::string folder_;
};

TEST_F(ScheduleProgramTest, PrintsAndDraws) {
  const ProcessResult result = Run({"--schedule", "1f1b", "--stages", "4", "--micro_batches", "8"});
  EXPECT_TRUE(result.ok()) << result.err;
  EXPECT_THAT(
      result.out,
      AllOf(StartsWith("1f1b: 4 ranks, 8 micro-batches\n"), HasSubstr("rank 3  .  .  .  F0"),
            HasSubstr("(p-1)/(m+p-1) = 27.3 %"), HasSubstr("activations in flight")));
  EXPECT_THAT(Written("schedule/1f1b.svg"), StartsWith("<svg"));
}

TEST_F(ScheduleProgramTest, StagesAreRanksTimesStagesARank) {
  const auto title = [this](std::vector<std::string> arguments) {
    arguments.insert(arguments.end(), {"--schedule=interleaved_1f1b", "--micro_batches=12"});
    const std::string out = Run(arguments).out;
    return out.substr(0, out.find('\n'));
  };
  const std::string four = "interleaved_1f1b: 4 ranks with 2 stages each, 12 micro-batches";
  EXPECT_EQ(title({}), four);
  EXPECT_EQ(title({"--stages=8"}), four);
  EXPECT_EQ(title({"--ranks=4"}), four);
  EXPECT_EQ(title({"--stages=8", "--ranks=4"}), four);
  EXPECT_EQ(title({"--stages=8", "--ranks=4", "--stages_per_rank=2"}), four);
  EXPECT_EQ(title({"--stages=6", "--stages_per_rank=3"}),
            "interleaved_1f1b: 2 ranks with 3 stages each, 12 micro-batches");
}

TEST_F(ScheduleProgramTest, VShapedSchedulesHaveTwoStagesARank) {
  for (const std::string name : {"zb_v", "dualpipe_v"}) {
    for (const std::vector<std::string>& size :
         {std::vector<std::string>{}, {"--stages=8"}, {"--ranks=4"}, {"--stages_per_rank=2"}}) {
      std::vector<std::string> arguments = {"--schedule=" + name, "--micro_batches=8"};
      arguments.insert(arguments.end(), size.begin(), size.end());
      EXPECT_THAT(Run(arguments).out,
                  AllOf(StartsWith(name + ": 4 ranks with 2 stages each, 8 micro-batches\n"),
                        HasSubstr("(p-1)/(6m+p-1) = 5.9 %"), HasSubstr("  0 7  "),
                        HasSubstr("rank 3  .   .   .   3F0 4F0")));
    }
  }
}

TEST_F(ScheduleProgramTest, CostsAreOfAllStagesOrOfEach) {
  const std::string alike =
      Run({"--schedule=gpipe", "--ranks=2", "--micro_batches=2", "--forward=2"}).out;
  EXPECT_THAT(alike, AllOf(HasSubstr("takes 12\n"), HasSubstr("33.3 %")));
  const std::string each = Run({"--schedule=gpipe", "--ranks=2", "--micro_batches=2",
                                "--forward=1,3", "--weight_gradient=1,3", "--transfer=0.5"})
                               .out;
  // F0 1, over 0.5, F0 F1 6, B0 B1 8, back 0.5, B1 2.
  EXPECT_THAT(each, HasSubstr("takes 18\n"));
}

TEST_F(ScheduleProgramTest, ReadsWhatItWrites) {
  EXPECT_TRUE(Run({"--schedule=zb_h1", "--write_csv=here/zb.csv", "--svg=a.svg"}).ok());
  const ProcessResult read =
      Run({"--csv=here/zb.csv", "--svg", folder_ + "/b.svg", "--write_csv=again.csv"});
  EXPECT_TRUE(read.ok()) << read.err;
  EXPECT_THAT(read.out, StartsWith("zb.csv: 4 ranks, 8 micro-batches\n"));
  EXPECT_EQ(Written("again.csv"), Written("here/zb.csv"));
  EXPECT_THAT(Written("b.svg"), StartsWith("<svg"));
}

TEST_F(ScheduleProgramTest, FaultyFilesNameTheCell) {
  EXPECT_THAT(FailCsv("0F0,0B0\n1B0,1F0\n"),
              AllOf(HasSubstr("deadlock: rank 0, action 1 (B0) waits for rank 1, action 0 (B0)"),
                    HasSubstr("deadlock: rank 1, action 0 (B0) waits for rank 1, action 1 (F0)")));
  EXPECT_THAT(FailCsv("0F0,0F1,0B0\n1F0,1B0\n"),
              AllOf(HasSubstr("rank 1, stage 1, micro-batch 1: no forward"),
                    HasSubstr("rank 0, stage 0, micro-batch 1: no backward")));
  EXPECT_THAT(FailCsv("0F0,0F1,0B1,0B0\n"),
              HasSubstr("rank 0, action 2 (B1): it is micro-batch 0's turn at stage 0"));
  EXPECT_THAT(FailCsv("0F0,0B0,0B0\n"),
              HasSubstr("rank 0, action 2 (B0): repeats rank 0, action 1 (B0)"));
  EXPECT_THAT(FailCsv("0F0,0B0,1000000000F0\n"), HasSubstr("'1000000000F0' is no action"));
  EXPECT_THAT(FailCsv("0F0,0B2000000000\n"), HasSubstr("'0B2000000000' is no action"));
  EXPECT_THAT(FailCsv("0F0,0X0\n"), HasSubstr("mine.csv, row 1, cell 2: '0X0' is no action"));
  EXPECT_THAT(Fail({"--csv=none.csv"}), HasSubstr("none.csv"));
}

TEST_F(ScheduleProgramTest, HelpNamesEverything) {
  const ProcessResult result = Run({"--help"});
  EXPECT_TRUE(result.ok());
  EXPECT_THAT(result.out, AllOf(HasSubstr("interleaved_1f1b"), HasSubstr("--weight_gradient")));
}

TEST_F(ScheduleProgramTest, WrongRequestsAreRefused) {
  EXPECT_THAT(Fail({"--schedule=1fb1"}), HasSubstr("did you mean 1f1b?"));
  EXPECT_THAT(Fail({"--stage=4"}), HasSubstr("did you mean --stages?"));
  EXPECT_THAT(Fail({"1f1b"}), HasSubstr("'1f1b' belongs to no option"));
  EXPECT_THAT(Fail({"--stages=0"}), HasSubstr("whole number from 1 to 64"));
  EXPECT_THAT(Fail({"--schedule=interleaved_1f1b", "--stages=5"}),
              HasSubstr("--stages 5 do not divide by 2 stages a rank"));
  EXPECT_THAT(Fail({"--stages=5", "--ranks=2"}), HasSubstr("do not divide by --ranks 2"));
  EXPECT_THAT(Fail({"--stages=4", "--ranks=8"}), HasSubstr("do not divide by --ranks 8"));
  EXPECT_THAT(Fail({"--stages=4", "--ranks=2", "--stages_per_rank=3"}),
              HasSubstr("--stages 4 is not --ranks 2 x --stages_per_rank 3"));
  EXPECT_THAT(Fail({"--ranks=64", "--stages_per_rank=2"}), HasSubstr("more than 64 stages"));
  EXPECT_THAT(Fail({"--stages=4", "--ranks=2"}), HasSubstr("has one stage a rank"));
  EXPECT_THAT(Fail({"--schedule=interleaved_1f1b", "--micro_batches=6"}),
              HasSubstr("6 do not divide by 4"));
  EXPECT_THAT(Fail({"--schedule=zb_v", "--stages_per_rank=3"}),
              HasSubstr("zb_v has 2 stages a rank, not 3"));
  EXPECT_THAT(Fail({"--schedule=dualpipe_v", "--micro_batches=7"}),
              HasSubstr("8 for 4, but there are 7"));
  EXPECT_THAT(Fail({"--forward=0"}), HasSubstr("'0' is no time above 0"));
  EXPECT_THAT(Fail({"--forward=nan"}), HasSubstr("'nan' is no time above 0"));
  EXPECT_THAT(Fail({"--forward=1,2"}), HasSubstr("one for each of the 4 stages"));
  EXPECT_THAT(Fail({"--transfer=-1"}), HasSubstr("0 or above"));
  EXPECT_TRUE(WriteFileAtomically(folder_ + "/mine.csv", "0F0,0B0\n").ok());
  EXPECT_THAT(Fail({"--csv=mine.csv", "--svg=mine.csv"}), HasSubstr("is read and cannot be"));
  EXPECT_THAT(Fail({"--write_csv=a", "--svg=a"}), HasSubstr("is named for an SVG picture and for"));
  EXPECT_THAT(Fail({"--svg=/dev/full"}), HasSubstr("it is a device"));
  EXPECT_THAT(Fail({"--csv=mine.csv", "--ranks=2"}),
              HasSubstr("--ranks: the file of --csv says that already"));
}

}  // namespace
}  // namespace lockstep
