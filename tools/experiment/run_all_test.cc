#include "tools/experiment/run_all.h"

#include <sys/stat.h>  // chmod

#include <filesystem>
#include <string>

#include "absl/strings/str_cat.h"
#include "core/base/file.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tools/experiment/paths.h"

namespace lockstep {
namespace {

using ::testing::HasSubstr;

class RunAllTest : public testing::Test {
 protected:
  RunAllTest() : scratch_(TemporaryDirectory::Create().value()) {}

  // A program whose run has one step, and that then does `end`. Its last two arguments are --out
  // DIR.
  PlannedRun Program(const std::string& name, const std::string& end = "exit 0") {
    const std::string path = scratch_.path() + "/" + name + ".sh";
    EXPECT_TRUE(
        WriteFileAtomically(
            path, absl::StrCat("#!/bin/sh\necho \"$@\" >> ", scratch_.path(), "/calls\n",
                               "while [ \"$1\" != --out ]; do shift; done\nmkdir -p \"$2\"\n",
                               "cd \"$2\"\nprintf 'step,loss\\n0,1.5\\n' > losses.csv\n",
                               "printf 'name = \"w\"\\ntrain.steps = 1\\n' > config.toml\n",
                               "echo '{\"workload\": \"w\", \"strategy\": \"", name,
                               "\", \"steps\": 1}' > summary.json\n", end, "\n"))
            .ok());
    EXPECT_EQ(chmod(path.c_str(), 0755), 0);
    return {.name = "w/" + name, .program = path, .workload = "w"};
  }

  std::string Calls() { return ReadFile(scratch_.path() + "/calls").value(); }

  TemporaryDirectory scratch_;
};

TEST_F(RunAllTest, RunsOneAfterAnotherEachWithADirectoryOfItsOwn) {
  const std::string out = scratch_.path() + "/runs";
  PlannedRun second = Program("b");
  second.arguments = {"--set", "cut.shards=1"};
  const RunAllResult result =
      RunAll({.runs = {Program("a"), second}, .out = out, .arguments = {"--set", "train.steps=1"}});
  EXPECT_FALSE(result.interrupted);
  ASSERT_EQ(result.records.size(), 2u);
  EXPECT_TRUE(result.records[0].complete()) << result.records[0].problem;
  EXPECT_EQ(result.records[0].strategy, "a");
  EXPECT_EQ(result.records[1].strategy, "b");
  EXPECT_EQ(Calls(), absl::StrCat("--set train.steps=1 --out ", out, "/w/a\n",
                                  "--set train.steps=1 --set cut.shards=1 --out ", out, "/w/b\n"));
}

TEST_F(RunAllTest, TellsWhichRunIsOnAndTheTimeLeft) {
  testing::internal::CaptureStderr();
  RunAll({.runs = {Program("a", "exit 1"), Program("b"), Program("c")},
          .out = scratch_.path() + "/runs",
          .arguments = {}});
  const std::string shown = testing::internal::GetCapturedStderr();
  EXPECT_THAT(shown, HasSubstr("[1/3] w/a\n"));
  EXPECT_THAT(shown, HasSubstr("[2/3] w/b\n"));  // a run that failed tells nothing of the others
  EXPECT_THAT(shown, testing::ContainsRegex("\\[3/3\\] w/c, about [^\n]+ left for all\n"));
}

TEST_F(RunAllTest, ARunThatFailsDoesNotStopTheOthers) {
  const RunAllResult result =
      RunAll({.runs = {Program("a", "rm summary.json; exit 3"), Program("b")},
              .out = scratch_.path() + "/runs",
              .arguments = {}});
  EXPECT_EQ(result.records[0].state, RunRecord::State::kUnfinished);
  EXPECT_EQ(result.records[0].problem,
            "stopped after 1 of 1 steps: exit code 3, see its message above");
  EXPECT_EQ(result.records[0].workload, "w");
  EXPECT_TRUE(result.records[1].complete());
}

TEST_F(RunAllTest, WhatAProgramSaidOfItsFailureIsInItsRecord) {
  const RunAllResult result =
      RunAll({.runs = {Program("a", "rm summary.json; echo 'no memory' > error.txt; exit 1"),
                       Program("b",
                               "rm *; echo 'train.stps: did you mean steps?' > error.txt; "
                               "exit 1")},
              .out = scratch_.path() + "/runs",
              .arguments = {}});
  EXPECT_EQ(result.records[0].problem, "stopped after 1 of 1 steps: no memory");
  EXPECT_EQ(result.records[1].problem, "train.stps: did you mean steps?");
  EXPECT_EQ(result.records[1].workload, "w") << "as it was asked for";
}

// A program that refuses to start leaves what an earlier one left in the directory.
TEST_F(RunAllTest, AnEarlierRunIsNotTakenForOneThatFailed) {
  const RunAllOptions options = {
      .runs = {Program("a")}, .out = scratch_.path() + "/runs", .arguments = {}};
  ASSERT_TRUE(RunAll(options).records[0].complete());
  Program("a", "exit 1");
  RunRecord record = RunAll(options).records[0];
  EXPECT_EQ(record.state, RunRecord::State::kMissing);
  EXPECT_THAT(record.problem, HasSubstr("exit code 1"));
  Program("a", "echo 'no such key' > error.txt; exit 1");
  record = RunAll(options).records[0];
  EXPECT_EQ(record.state, RunRecord::State::kMissing);
  EXPECT_EQ(record.problem, "no such key");
  Program("a", "exit 1");
  record = RunAll(options).records[0];
  EXPECT_THAT(record.problem, HasSubstr("exit code 1")) << "the error is an earlier run's";
}

TEST_F(RunAllTest, AnInterruptKeepsWhatIsDoneAndStartsNoMore) {
  const RunAllResult result =
      RunAll({.runs = {Program("a"), Program("b", "kill -INT $PPID; exec sleep 100"), Program("c")},
              .out = scratch_.path() + "/runs",
              .arguments = {}});
  EXPECT_TRUE(result.interrupted);
  ASSERT_EQ(result.records.size(), 3u);
  EXPECT_TRUE(result.records[0].complete());
  EXPECT_THAT(result.records[1].problem, HasSubstr("interrupted"));
  EXPECT_THAT(result.records[2].problem, HasSubstr("not run"));
  EXPECT_FALSE(std::filesystem::exists(scratch_.path() + "/runs/w/c"));
}

TEST_F(RunAllTest, AProgramThatIsNotThereIsToldInItsRecord) {
  const RunAllResult result = RunAll({.runs = {{.name = "w/a", .program = "/no/such/program"}},
                                      .out = scratch_.path() + "/runs",
                                      .arguments = {}});
  EXPECT_THAT(result.records[0].problem, HasSubstr("/no/such/program"));
}

}  // namespace
}  // namespace lockstep
