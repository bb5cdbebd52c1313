// Stages as processes under mpirun: the bits of threads; and what the summary says of them.

#include <string>
#include <vector>

#include "core/base/subprocess.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"
#include "strategies/testing/launched_run.h"

namespace lockstep {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr char kTables[] = R"([train]
steps = 4
[cut]
micro_batches = 2
[mesh]
pp = 2
dp = 2
[trace]
first_step = 3
steps = 1
)";

class LayerwiseMpiTest : public LaunchedRunTest {
 protected:
  LayerwiseMpiTest() : LaunchedRunTest("strategies/layerwise/main", LaunchedGpt(2, kTables)) {}
};

TEST_F(LayerwiseMpiTest, GivesTheBitsOfThreads) {
  const ProcessResult threads = Run({}, "threads");
  ASSERT_TRUE(threads.ok()) << threads.err;
  const ProcessResult processes = Run(MpiRun(4), "processes");
  ASSERT_TRUE(processes.ok()) << processes.err;
  EXPECT_EQ(File("processes/losses.csv"), File("threads/losses.csv"));
  const nlohmann::json one = Summary("threads"), other = Summary("processes");
  for (const char* same :
       {"parameter_hash", "validation_loss", "traffic_bytes_per_step", "traffic_bytes_once"}) {
    EXPECT_EQ(other[same], one[same]) << same;
  }
}

// Each process would measure otherwise; one measures for all.
TEST_F(LayerwiseMpiTest, ProcessesAgreeOnAMeasuredBalance) {
  const ProcessResult told = Run({}, "told");
  ASSERT_TRUE(told.ok()) << told.err;
  const ProcessResult measured = Run(MpiRun(4), "measured", {"--set", "pipeline.balance=time"});
  ASSERT_TRUE(measured.ok()) << measured.err;
  EXPECT_EQ(File("measured/losses.csv"), File("told/losses.csv"));
  // The rehearsal after the run measures nothing anew.
  const size_t said = measured.err.find("balance = [");
  ASSERT_NE(said, std::string::npos) << measured.err;
  EXPECT_EQ(measured.err.find("balance = [", said + 1), std::string::npos) << measured.err;
  const auto summary = Summary("measured");
  for (const auto& [memory_class, bytes] : summary["memory"].items()) {
    EXPECT_TRUE(bytes.contains("predicted")) << memory_class;
  }
}

// Stages of two ranks that compute their layers together, on sequences that they divide.
TEST_F(LayerwiseMpiTest, GivesTheBitsOfThreadsWithTensorParallelism) {
  const std::vector<std::string> mesh = {"--set", "mesh.dp=1",
                                         "--set", "mesh.tp=2",
                                         "--set", "tensor_parallel.sequence_parallel=true"};
  const ProcessResult threads = Run({}, "threads", mesh);
  ASSERT_TRUE(threads.ok()) << threads.err;
  const ProcessResult processes = Run(MpiRun(4), "processes", mesh);
  ASSERT_TRUE(processes.ok()) << processes.err;
  EXPECT_EQ(File("processes/losses.csv"), File("threads/losses.csv"));
  EXPECT_EQ(Summary("processes")["parameter_hash"], Summary("threads")["parameter_hash"]);
}

TEST_F(LayerwiseMpiTest, TheSummaryShowsTheMeshAndWhoWaits) {
  const ProcessResult result = Run({}, "out");
  ASSERT_TRUE(result.ok()) << result.err;
  EXPECT_THAT(
      result.out,
      AllOf(HasSubstr("mesh pp=2,dp=2,tp=1, 4 ranks"), HasSubstr("  pp 1  dp 0         2\n"),
            HasSubstr("share of a step spent waiting"),
            HasSubstr("all together                           50.0 %"), Not(HasSubstr("recv"))));
  const nlohmann::json summary = Summary("out");
  // Whatever is sent has its theory: in each step, and once, where stages announce their shapes.
  for (const char* often : {"traffic_bytes_per_step", "traffic_bytes_once"}) {
    EXPECT_FALSE(summary[often].empty()) << often;
    for (const auto& [kind, bytes] : summary[often].items()) {
      EXPECT_DOUBLE_EQ(bytes["predicted"], bytes["measured"]) << kind;
    }
  }
  EXPECT_EQ(summary["traffic_bytes_once"]["send shapes"]["measured"], 1024);
  EXPECT_DOUBLE_EQ(summary["bubble_fraction"]["predicted"], 0.5);
  for (const nlohmann::json& rank : summary["per_rank"]) {
    EXPECT_GT(rank["bubble_fraction"]["measured"], 0);
    EXPECT_LT(rank["bubble_fraction"]["measured"], 1);
  }
  EXPECT_THAT(File("out/trace.json"), HasSubstr("\"name\":\"bubble\""));
}

TEST_F(LayerwiseMpiTest, OneAxisNeedsNoGridAndOneStageNeverWaits) {
  const ProcessResult result = Run({}, "out", {"--set", "mesh.pp=1"});
  ASSERT_TRUE(result.ok()) << result.err;
  EXPECT_THAT(result.out, AllOf(Not(HasSubstr("dp 1")), Not(HasSubstr("spent waiting"))));
  EXPECT_EQ(Summary("out")["bubble_fraction"]["predicted"], 0);
}

TEST_F(LayerwiseMpiTest, TheMeshMustFitTheLauncher) {
  const ProcessResult result = Run(MpiRun(3), "out");
  EXPECT_FALSE(result.ok());
  EXPECT_THAT(result.err, HasSubstr("the mesh pp=2,dp=2,tp=1 has 4 ranks, but the launcher has "
                                    "started 3 processes"));
}

}  // namespace
}  // namespace lockstep
