// The programs: a band of a small GPT is made, and losses are placed in it.

#include <filesystem>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "core/base/file.h"
#include "core/base/subprocess.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tools/curve/loss_band.h"

namespace lockstep {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr char kWorkload[] = R"(name = "small"
batch = {size = 8}
cut = {shards = 2, micro_batches = 1, tokens = 2, features = 2}
train = {steps = 9, clip_norm = 1.0}
schedule = {learning_rate = 0.01, total_steps = 9}
optimizer = {kind = "adamw"}
run = {threads = 1}
[model]
kind = "transformer"
layers = 1
heads = 2
width = 16
[data]
kind = "markov"
context = 16
validation_samples = 8
)";

class BandTest : public testing::Test {
 protected:
  BandTest()
      : folder_(std::filesystem::path(testing::TempDir() + "/band").lexically_normal()),
        band_(folder_ + "/out/band.csv") {
    std::filesystem::remove_all(folder_);
    std::filesystem::create_directories(folder_);
    EXPECT_TRUE(WriteFileAtomically(folder_ + "/workload.toml", kWorkload).ok());
  }

  static ProcessResult Start(const std::string& program, std::vector<std::string> arguments) {
    arguments.insert(arguments.begin(), program);
    return RunProcess({.arguments = std::move(arguments)}).value();
  }

  ProcessResult Band(std::vector<std::string> more) {
    more.insert(more.begin(), {"--workload_file", folder_ + "/workload.toml", "--output", band_});
    return Start("tools/curve/band", std::move(more));
  }

  const std::string folder_, band_;
};

TEST_F(BandTest, IsMadeAndPlacesLosses) {
  const ProcessResult made = Band({"--runs", "28", "--steps", "5"});
  ASSERT_EQ(made.exit_code, 0) << made.err;
  EXPECT_THAT(made.err, AllOf(HasSubstr("[1/28] cut.shards="), HasSubstr("[28/28]")));
  EXPECT_THAT(made.out, HasSubstr("The band of 28 runs, which a legitimate run leaves with a "
                                  "probability of 0.05 at most, is " +
                                  band_));
  const absl::StatusOr<LossBand> band = ReadBand(band_);
  ASSERT_TRUE(band.ok()) << band.status();
  EXPECT_EQ(band->workload, "small");
  EXPECT_EQ(band->steps.size(), 5u);

  // A run of the workload itself, and the same losses with a mistake from step 3 on.
  const std::string run = folder_ + "/single", theirs = folder_ + "/theirs.csv";
  ASSERT_EQ(Start("strategies/single/main",
                  {"--config", folder_ + "/workload.toml", "--out", run, "--set", "train.steps=5"})
                .exit_code,
            0);
  const std::string losses = ReadFile(run + "/losses.csv").value();
  ASSERT_TRUE(WriteFileAtomically(
                  theirs, absl::StrReplaceAll(losses, {{"\n3,", "\n3,9"}, {"\n4,", "\n4,9"}}))
                  .ok());
  const ProcessResult inside = Start("tools/divergence/divergence", {"--band", band_, run});
  EXPECT_EQ(inside.exit_code, 0) << inside.err;
  EXPECT_THAT(inside.out, HasSubstr("inside (at most"));
  const ProcessResult outside = Start("tools/divergence/divergence", {"--band", band_, theirs});
  EXPECT_EQ(outside.exit_code, 1) << outside.err;
  EXPECT_THAT(outside.out, HasSubstr("outside from step 3"));
  EXPECT_THAT(ReadFile(folder_ + "/divergence.html").value(), HasSubstr("outside from step 3"));

  const ProcessResult compared = Start("tools/compare/compare", {"--band", band_, run, theirs});
  EXPECT_EQ(compared.exit_code, 0) << compared.err;
  EXPECT_THAT(compared.out, AllOf(HasSubstr("In the band of small"), HasSubstr("inside (at most"),
                                  HasSubstr("outside from step 3")));
  EXPECT_THAT(ReadFile(folder_ + "/comparison.html").value(), HasSubstr("limit of the band"));
  EXPECT_THAT(Start("tools/compare/compare", {theirs}).err, HasSubstr("--band FILE"));
  EXPECT_EQ(Start("tools/compare/compare", {"--band", band_, theirs}).exit_code, 0);
  EXPECT_THAT(Start("tools/compare/compare", {"--band", theirs, run}).err,
              HasSubstr("this is no band of losses"));
  EXPECT_THAT(Start("tools/divergence/divergence", {"--band", band_}).err,
              HasSubstr("name the directories of two runs"));
}

TEST_F(BandTest, BadFlagsHaveOneMessageEach) {
  const auto message = [this](const std::vector<std::string>& more) {
    const ProcessResult result = Band(more);
    EXPECT_EQ(result.exit_code, 1);
    return result.err;
  };
  EXPECT_THAT(message({"--runs", "27"}),
              HasSubstr("--runs 27: a rate of 0.05 false alarms takes at least 28 runs"));
  EXPECT_THAT(message({"--rate", "0"}), HasSubstr("--rate 0: give a number from 0.001 to 0.5"));
  EXPECT_THAT(message({"--steps", "0"}), HasSubstr("--steps 0: give a whole number"));
  EXPECT_THAT(message({"--workload", "small"}), HasSubstr("give --workload, a folder"));
  EXPECT_THAT(message({"--set", "model.widht=3"}), HasSubstr("widht"));
  ASSERT_TRUE(WriteFileAtomically(folder_ + "/other.csv", "a,b\n").ok());
  EXPECT_THAT(message({"--output", folder_ + "/other.csv"}), HasSubstr("is not a band of losses"));
  setenv("BUILD_WORKSPACE_DIRECTORY", folder_.c_str(), 1);
  std::filesystem::create_directories(folder_ + "/experiments/tiny");
  ASSERT_TRUE(WriteFileAtomically(folder_ + "/experiments/tiny/workload.toml", kWorkload).ok());
  const ProcessResult unknown = Start("tools/curve/band", {"--workload", "huge"});
  EXPECT_EQ(unknown.exit_code, 1);
  EXPECT_THAT(unknown.err, HasSubstr("there is no workload 'huge'; experiments/ has tiny"));
}

TEST_F(BandTest, WorkloadsThatDivergeHaveNoBand) {
  const ProcessResult result =
      Band({"--runs", "28", "--steps", "5", "--set", "schedule.learning_rate=1e30", "--set",
            "train.on_nan=continue", "--set", "optimizer.kind=sgd", "--set", "train.clip_norm=0"});
  EXPECT_EQ(result.exit_code, 1);
  EXPECT_THAT(result.err, HasSubstr("a workload that diverges has no band"));
}

}  // namespace
}  // namespace lockstep
