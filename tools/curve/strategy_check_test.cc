#include "tools/curve/strategy_check.h"

#include <sys/stat.h>  // chmod

#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "core/base/file.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tools/experiment/paths.h"

namespace lockstep {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

// What a program that stands in for a strategy leaves behind.
struct FakeRun {
  std::string strategy = "ddp";
  std::vector<std::string> losses = {"2.5", "2.25", "2.125"};
  std::string hash = "0123456789abcdef";
  int exit_code = 0;
};

class StrategyCheckTest : public testing::Test {
 protected:
  StrategyCheckTest() : scratch_(TemporaryDirectory::Create().value()) {
    Write("golden.csv", "step,loss\n0,2.5\n1,2.25\n2,2.125\n3,2.0\n");
  }

  std::string Write(const std::string& name, const std::string& text) {
    const std::string path = scratch_.path() + "/" + name;
    EXPECT_TRUE(WriteFileAtomically(path, text).ok());
    return path;
  }

  // A shell script that writes a run directory and keeps its arguments in <name>.arguments.
  std::string Program(const std::string& name, const FakeRun& run) {
    std::string rows = "step,loss\n";
    for (size_t i = 0; i < run.losses.size(); ++i) {
      absl::StrAppend(&rows, i, ",", run.losses[i], "\n");
    }
    const std::string summary =
        absl::StrCat(R"({"workload": "w", "strategy": ")", run.strategy,
                     R"(", "shards": 2, "micro_batches": 3,)", R"( "steps": )", 3,
                     R"(, "parameter_hash": ")", run.hash, R"("})");
    const std::string path = Write(
        name,
        absl::StrCat("#!/bin/sh\necho \"$@\" > ", scratch_.path(), "/", name, ".arguments\n",
                     "while [ \"$1\" != --out ]; do shift; done\nmkdir -p \"$2\"; cd \"$2\"\n",
                     "cat > losses.csv <<'END'\n", rows, "END\n",
                     "cat > config.toml <<'END'\nname = 'w'\n[train]\nsteps = 3\nEND\n",
                     "cat > summary.json <<'END'\n", summary, "\nEND\n",
                     "echo the reason >&2\nexit ", run.exit_code, "\n"));
    EXPECT_EQ(chmod(path.c_str(), 0755), 0);
    return path;
  }

  std::string ArgumentsOf(const std::string& name) {
    return ReadFile(scratch_.path() + "/" + name + ".arguments").value();
  }

  // Options for both lanes.
  StrategyCheckOptions Options(const FakeRun& candidate, const FakeRun& reference) {
    return {.candidate = Program("candidate.sh", candidate),
            .steps = 3,
            .reference = Program("reference.sh", reference),
            .golden = scratch_.path() + "/golden.csv",
            .golden_steps = 3,
            .golden_tolerance = 1e-3,
            .scratch = scratch_.path()};
  }

  TemporaryDirectory scratch_;
};

const FakeRun kSingle = {.strategy = "single"};

TEST_F(StrategyCheckTest, EqualRunsPassBothLanes) {
  const auto lanes = CheckStrategy(Options({}, kSingle));
  ASSERT_TRUE(lanes.ok()) << lanes.status();
  ASSERT_EQ(lanes->size(), 2u);
  EXPECT_EQ((*lanes)[0].lane, "exact");
  EXPECT_TRUE((*lanes)[0].status.ok()) << (*lanes)[0].status;
  EXPECT_EQ((*lanes)[1].lane, "golden");
  EXPECT_TRUE((*lanes)[1].status.ok()) << (*lanes)[1].status;
}

TEST_F(StrategyCheckTest, BothWalkTheSameStepsOnOneThread) {
  ASSERT_TRUE(CheckStrategy(Options({}, kSingle)).ok());
  for (const char* program : {"candidate.sh", "reference.sh"}) {
    EXPECT_THAT(ArgumentsOf(program),
                AllOf(HasSubstr("--set train.steps=3"), HasSubstr("--set run.threads=1")));
  }
}

TEST_F(StrategyCheckTest, ALastDigitFailsTheExactLaneOnly) {
  const auto lanes = CheckStrategy(Options({.losses = {"2.5", "2.25000024", "2.125"}}, kSingle));
  ASSERT_TRUE(lanes.ok()) << lanes.status();
  EXPECT_THAT(std::string((*lanes)[0].status.message()),
              HasSubstr("ddp leaves single, relative tolerance 0, at step 1: 2.25000024, expected "
                        "2.25"));
  EXPECT_EQ((*lanes)[0].failed_step, 1);
  EXPECT_TRUE((*lanes)[1].status.ok()) << (*lanes)[1].status;
  EXPECT_FALSE((*lanes)[1].failed_step);
}

TEST_F(StrategyCheckTest, OtherParametersFailTheExactLane) {
  const auto lanes = CheckStrategy(Options({.hash = "ffff"}, kSingle));
  ASSERT_TRUE(lanes.ok()) << lanes.status();
  EXPECT_THAT(std::string((*lanes)[0].status.message()),
              AllOf(HasSubstr("hash ffff"), HasSubstr("expected 0123456789abcdef")));
  EXPECT_EQ((*lanes)[0].failed_step, 2);
}

// A program whose second run, and any after it, is another one.
class RepeatTest : public StrategyCheckTest {
 protected:
  absl::StatusOr<std::vector<LaneResult>> Check(const FakeRun& first, const FakeRun& second) {
    StrategyCheckOptions options = Options({}, kSingle);
    options.reference = options.golden = "";
    options.repeat = true;
    options.candidate =
        Write("twice.sh", absl::StrCat("#!/bin/sh\ncd ", scratch_.path(), "\n[ -e once ] && exec ",
                                       Program("second.sh", second), " \"$@\"\ntouch once\nexec ",
                                       Program("first.sh", first), " \"$@\"\n"));
    EXPECT_EQ(chmod(options.candidate.c_str(), 0755), 0);
    return CheckStrategy(options);
  }
};

TEST_F(RepeatTest, ASecondRunWithTheSameBitsPasses) {
  const auto lanes = Check({}, {});
  ASSERT_TRUE(lanes.ok()) << lanes.status();
  ASSERT_EQ(lanes->size(), 1u);
  EXPECT_EQ((*lanes)[0].lane, "repeat");
  EXPECT_TRUE((*lanes)[0].status.ok()) << (*lanes)[0].status;
}

TEST_F(RepeatTest, ALastDigitFails) {
  const auto lanes = Check({}, {.losses = {"2.5", "2.25000024", "2.125"}});
  ASSERT_TRUE(lanes.ok()) << lanes.status();
  EXPECT_THAT(std::string((*lanes)[0].status.message()),
              HasSubstr("the second run leaves the first, relative tolerance 0, at step 1: "
                        "2.25000024, expected 2.25"));
}

TEST_F(RepeatTest, OtherParametersFail) {
  const auto lanes = Check({}, {.hash = "ffff"});
  ASSERT_TRUE(lanes.ok()) << lanes.status();
  EXPECT_THAT(std::string((*lanes)[0].status.message()),
              AllOf(HasSubstr("the second run has the losses of the first in all 3 steps"),
                    HasSubstr("hash ffff")));
}

TEST_F(StrategyCheckTest, BothMovedFailsTheGoldenLaneOnly) {
  const std::vector<std::string> moved = {"2.5", "2.26", "2.125"};
  const auto lanes =
      CheckStrategy(Options({.losses = moved}, {.strategy = "single", .losses = moved}));
  ASSERT_TRUE(lanes.ok()) << lanes.status();
  EXPECT_TRUE((*lanes)[0].status.ok()) << (*lanes)[0].status;
  EXPECT_THAT(std::string((*lanes)[1].status.message()), HasSubstr("step 1: 2.26, expected 2.25"));
  EXPECT_EQ((*lanes)[1].failed_step, 1);
}

TEST_F(StrategyCheckTest, TheGoldenLaneMayTakeFewerSteps) {
  const std::vector<std::string> moved = {"2.5", "2.25", "2.2"};
  StrategyCheckOptions options =
      Options({.losses = moved}, {.strategy = "single", .losses = moved});
  options.golden_steps = 2;
  auto lanes = CheckStrategy(options);
  ASSERT_TRUE(lanes.ok()) << lanes.status();
  EXPECT_TRUE((*lanes)[1].status.ok()) << (*lanes)[1].status;
  for (int64_t wrong : {0, 4}) {
    options.golden_steps = wrong;
    EXPECT_FALSE(CheckStrategy(options).ok()) << wrong;
  }
}

TEST_F(StrategyCheckTest, AShortGoldenCurveFails) {
  Write("golden.csv", "step,loss\n0,2.5\n1,2.25\n");
  const auto lanes = CheckStrategy(Options({}, kSingle));
  ASSERT_TRUE(lanes.ok()) << lanes.status();
  EXPECT_THAT(std::string((*lanes)[1].status.message()), HasSubstr("ends after 2 of 3 steps"));
}

TEST_F(StrategyCheckTest, ARunThatStopsEarlyIsAnError) {
  const auto lanes = CheckStrategy(Options({.losses = {"2.5", "2.25"}}, kSingle));
  EXPECT_THAT(std::string(lanes.status().message()), HasSubstr("stopped after 2 of 3 steps"));
}

TEST_F(StrategyCheckTest, AProgramThatFailsIsAnErrorWithItsMessage) {
  const auto lanes = CheckStrategy(Options({.exit_code = 1}, kSingle));
  EXPECT_THAT(std::string(lanes.status().message()),
              AllOf(HasSubstr("candidate.sh: exit code 1"), HasSubstr("the reason")));
}

TEST_F(StrategyCheckTest, CheckingNothingIsAnError) {
  StrategyCheckOptions options = Options({}, kSingle);
  options.reference = options.golden = "";
  EXPECT_FALSE(CheckStrategy(options).ok());
}

}  // namespace
}  // namespace lockstep
