// The same run with ranks as threads and as processes under mpirun: the same bits.

#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "core/base/subprocess.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"
#include "strategies/testing/launched_run.h"

namespace lockstep {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;

constexpr char kTables[] = R"([train]
steps = 5
[cut]
micro_batches = 2
[mesh]
dp = 3
[checkpoint]
every = 3
[trace]
first_step = 3
steps = 1
)";

class DdpMpiTest : public LaunchedRunTest {
 protected:
  DdpMpiTest() : LaunchedRunTest("strategies/ddp/main", LaunchedGpt(2, kTables)) {}
};

TEST_F(DdpMpiTest, GivesTheBitsOfThreads) {
  const ProcessResult threads = Run({}, "threads");
  ASSERT_TRUE(threads.ok()) << threads.err;
  const ProcessResult processes = Run(MpiRun(3), "processes");
  ASSERT_TRUE(processes.ok()) << processes.err;
  EXPECT_EQ(File("processes/losses.csv"), File("threads/losses.csv"));
  const nlohmann::json one = Summary("threads"), other = Summary("processes");
  EXPECT_EQ(other["parameter_hash"], one["parameter_hash"]);
  EXPECT_EQ(other["validation_loss"], one["validation_loss"]);
  EXPECT_EQ(other["traffic_bytes_per_step"], one["traffic_bytes_per_step"]);
  EXPECT_EQ(other["per_rank"].size(), 3u);
  // All ranks are in the trace.
  const nlohmann::json trace = nlohmann::json::parse(File("processes/trace.json"));
  for (const int rank : {0, 1, 2})
    EXPECT_THAT(trace.dump(), HasSubstr(absl::StrCat("\"pid\":", rank)));
}

TEST_F(DdpMpiTest, ResumesWhatThreadsHaveBegun) {
  ASSERT_TRUE(Run({}, "whole").ok());
  ASSERT_TRUE(Run({}, "cut", {"--set", "train.steps=3", "--set", "schedule.total_steps=5"}).ok());
  const ProcessResult rest = Run(MpiRun(3), "cut", {"--resume"});
  ASSERT_TRUE(rest.ok()) << rest.err;
  EXPECT_EQ(File("cut/losses.csv"), File("whole/losses.csv"));
  EXPECT_EQ(Summary("cut")["parameter_hash"], Summary("whole")["parameter_hash"]);
}

TEST_F(DdpMpiTest, AMistakeIsReportedOnce) {
  const ProcessResult result = Run(MpiRun(3), "out", {"--set", "mesh.pd=3"});
  EXPECT_FALSE(result.ok());
  const std::string message = "unknown key mesh.pd; did you mean mesh.dp?";
  const size_t at = result.err.find(message);
  ASSERT_NE(at, std::string::npos) << result.err;
  EXPECT_EQ(result.err.find(message, at + 1), std::string::npos) << result.err;
}

// Every rank reads the checkpoint, and one says what is wrong with it.
TEST_F(DdpMpiTest, ABadCheckpointIsReportedOnce) {
  ASSERT_TRUE(Run({}, "cut", {"--set", "train.steps=3"}).ok());
  const std::string checkpoint = path("cut/checkpoints/step-00000003.safetensors");
  std::filesystem::resize_file(checkpoint, std::filesystem::file_size(checkpoint) - 1);
  const ProcessResult result = Run(MpiRun(3), "cut", {"--resume"});
  EXPECT_FALSE(result.ok());
  const std::string told = std::filesystem::path(checkpoint).lexically_normal().string();
  const size_t at = result.err.find(told);
  ASSERT_NE(at, std::string::npos) << result.err;
  EXPECT_EQ(result.err.find(told, at + 1), std::string::npos) << result.err;
}

// Before this was checked, the ranks trained on, each on its own.
TEST_F(DdpMpiTest, RanksThatWereStartedDifferentlyAreTold) {
  // By key, the value as a shell computes it from the number of the rank. Each batch fits the mesh.
  const std::map<std::string, std::string> keys = {
      {"train.seed", "$((OMPI_COMM_WORLD_RANK + 1))"},
      {"schedule.learning_rate", "$((OMPI_COMM_WORLD_RANK + 1))"},
      {"batch.size", "$((6 * OMPI_COMM_WORLD_RANK + 6))"},
      {"train.clip_norm", "$((OMPI_COMM_WORLD_RANK + 1))"},
      {"model.dropout", "0.$OMPI_COMM_WORLD_RANK"},
      {"data.source", "$((OMPI_COMM_WORLD_RANK + 1))"}};
  for (const auto& [key, value] : keys) {
    const std::string program = absl::StrCat("exec \"$@\" --set ", key, "=", value);
    std::vector<std::string> launcher = MpiRun(3);
    launcher.insert(launcher.end(), {"/bin/sh", "-c", program, "sh"});
    const ProcessResult result = Run(launcher, "out");
    EXPECT_FALSE(result.ok());
    EXPECT_THAT(result.err, HasSubstr(key + " is "));
    const std::string message = "rank 1 was not started as rank 0 was: ";
    const size_t at = result.err.find(message);
    ASSERT_NE(at, std::string::npos) << result.err;
    EXPECT_EQ(result.err.find(message, at + 1), std::string::npos) << result.err;
    EXPECT_FALSE(std::filesystem::exists(path("out/losses.csv")));
  }
}

// mpirun ends the others with SIGTERM, which is not why the run has failed.
TEST_F(DdpMpiTest, ErrorFileNamesTheRankThatDied) {
  const std::string program =
      absl::StrCat("if [ $OMPI_COMM_WORLD_RANK = 2 ]; then (until [ -s ", path("out/losses.csv"),
                   " ]; do sleep 0.1; done; kill -9 $$) & fi; exec \"$@\"");
  std::vector<std::string> launcher = MpiRun(3);
  launcher.insert(launcher.end(), {"/bin/sh", "-c", program, "sh"});
  const ProcessResult result = Run(
      launcher, "out", {"--set", "train.steps=1000000", "--set", "schedule.total_steps=1000000"});
  EXPECT_FALSE(result.ok());
  EXPECT_THAT(File("out/error.txt"), StartsWith("rank 2 died or does not answer; "));
}

TEST_F(DdpMpiTest, TheMeshMustFitTheLauncher) {
  ASSERT_TRUE(Run({}, "kept").ok());
  const std::string losses = File("kept/losses.csv");
  EXPECT_FALSE(Run(MpiRun(2), "kept").ok());
  EXPECT_EQ(File("kept/losses.csv"), losses);
  EXPECT_FALSE(std::filesystem::exists(path("kept.1")));
  const ProcessResult result = Run(MpiRun(2), "out");
  EXPECT_FALSE(result.ok());
  EXPECT_THAT(result.err, HasSubstr("has 3 ranks, but the launcher has started 2 processes"));
  EXPECT_FALSE(std::filesystem::exists(path("out/losses.csv")));
}

}  // namespace
}  // namespace lockstep
