// The test of a curve, on runs that are broken on purpose: it fails, and names the tensor.

#include <sys/stat.h>  // chmod

#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "core/base/file.h"
#include "core/base/subprocess.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tools/experiment/paths.h"

namespace lockstep {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr char kWorkload[] = R"(name = "broken"
mesh = {pp = 1, replicas = 1, dp = 1, tp = 1}
[model]
kind = "transformer"
layers = 2
heads = 2
width = 32
[data]
kind = "markov"
context = 16
[optimizer]
kind = "adamw"
[schedule]
kind = "constant"
learning_rate = 0.01
total_steps = 4
[train]
steps = 4
[batch]
size = 8
[cut]
shards = 2
micro_batches = 1
tokens = 2
features = 2
)";

class CurveTest : public testing::Test {
 protected:
  CurveTest() : scratch_(TemporaryDirectory::Create().value()) {
    Write("workload.toml", kWorkload);
    EXPECT_TRUE(MakeDirectories(Path("outputs")).ok());
  }

  std::string Path(const std::string& name) const { return scratch_.path() + "/" + name; }
  void Write(const std::string& name, const std::string& text) {
    ASSERT_TRUE(WriteFileAtomically(Path(name), text).ok());
  }

  // A program that trains the workload.
  std::string Program(const std::string& name, const std::string& binary,
                      const std::string& arguments = "") {
    Write(name, absl::StrCat("#!/bin/sh\nexec ", binary, " --config ", Path("workload.toml"), " ",
                             arguments, " \"$@\"\n"));
    EXPECT_EQ(chmod(Path(name).c_str(), 0755), 0);
    return Path(name);
  }
  std::string Single() { return Program("single", "strategies/single/main"); }
  std::string FaultyTp() {
    return Program("tp", "tools/divergence/testing/faulty_tp", "--set mesh.tp=2");
  }

  ProcessResult Run(std::vector<std::string> arguments) {
    arguments.insert(arguments.begin(), {"tools/curve/curve", "--candidate_steps=3"});
    return RunProcess({.arguments = arguments,
                       .environment = {{"TEST_UNDECLARED_OUTPUTS_DIR", Path("outputs")}}})
        .value();
  }

  TemporaryDirectory scratch_;
};

TEST_F(CurveTest, AStrategyThatPartsFromSingleIsToldByItsTensor) {
  const ProcessResult result = Run({"--candidate=" + FaultyTp(), "--reference=" + Single()});
  EXPECT_EQ(result.exit_code, 1) << result.err;
  EXPECT_THAT(result.out, AllOf(HasSubstr("exact: FAIL"), HasSubstr("step 2, micro-batch 0"),
                                HasSubstr("forward of blocks.0.attention.projection")));
  for (const char* left : {"divergence.html", "probes/a/probes/step-000001.rank-00000.jsonl",
                           "probes/b/probes/step-000001.rank-00001.jsonl",
                           "probes/b.values/probes/step-000001.rank-00001.values"}) {
    EXPECT_TRUE(PathExists(Path("outputs") + "/" + left)) << left;
  }
}

TEST_F(CurveTest, AKeptCurveThatHasMovedLeavesProbesToCompare) {
  Write("expected_loss.csv", "step,loss\n0,1\n1,1\n2,1\n");
  const ProcessResult result =
      Run({"--candidate=" + Single(), "--golden=" + Path("expected_loss.csv"), "--golden_steps=3"});
  EXPECT_EQ(result.exit_code, 1) << result.err;
  EXPECT_THAT(result.out, AllOf(HasSubstr("golden: FAIL"), HasSubstr("//tools/curve:bisect"),
                                HasSubstr("--strategy single")));
  EXPECT_TRUE(PathExists(Path("outputs/probes/b/probes/step-000000.rank-00000.jsonl")));
}

TEST_F(CurveTest, AStrategyThatHasTheBitsOfSinglePassesAndLeavesNothing) {
  const ProcessResult result = Run({"--candidate=" + Single(), "--reference=" + Single()});
  EXPECT_EQ(result.exit_code, 0) << result.out << result.err;
  EXPECT_THAT(result.out, Not(HasSubstr("FAIL")));
  EXPECT_FALSE(PathExists(Path("outputs/probes")));
}

}  // namespace
}  // namespace lockstep
