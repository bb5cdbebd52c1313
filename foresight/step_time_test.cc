#include "foresight/step_time.h"

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "core/base/file.h"
#include "core/comm/operation.h"
#include "core/comm/signature.h"
#include "foresight/cluster.h"
#include "foresight/comm_time.h"
#include "foresight/dialect.h"
#include "foresight/network_time.h"
#include "foresight/recorded_run.h"
#include "gtest/gtest.h"
#include "models/models.h"
#include "strategies/engine/preset.h"
#include "strategies/testing/run_strategy.h"

namespace lockstep {
namespace {

// 1 byte/s of everything but links, which are as quick as they are told: by default, a message
// takes no time that counts.
Cluster Simple(double link_bandwidth = 1e12) {
  Cluster cluster;
  cluster.device.bandwidth = 1;
  cluster.device.peak = {{DType::kF32, 1}};
  cluster.node.devices = 64;
  cluster.node.link_bandwidth = link_bandwidth;
  return cluster;
}

// Attention takes a second forward and two backward; nothing else takes any time.
Dialect Of(const std::string& more) {
  const std::string path = testing::TempDir() + "/dialect.toml";
  EXPECT_TRUE(WriteFileAtomically(path, R"toml(
name = "attention"
)toml" + more + R"toml(
[kernels.default]
[kernels.AttentionForward]
does = ["pass(1)"]
keeps = "10"
[kernels.AttentionBackward]
does = ["pass(2)"]
)toml")
                  .ok());
  auto dialect = Dialect::Read(path);
  EXPECT_TRUE(dialect.ok()) << dialect.status();
  return *std::move(dialect);
}

StepTime Record(const CommandLine& command_line, const Dialect& dialect, const Cluster& cluster) {
  auto run = RecordRun(command_line, EnginePreset("plan", {}), MakeModel);
  EXPECT_TRUE(run.ok()) << run.status();
  auto step =
      StepTime::Create(std::make_shared<const RecordedRun>(*std::move(run)), dialect, cluster);
  EXPECT_TRUE(step.ok()) << step.status();
  return *std::move(step);
}

// A transformer of `layers` layers.
CommandLine Gpt(int layers, const Assignments& assignments) {
  const std::string config = testing::TempDir() + "/gpt.toml";
  EXPECT_TRUE(WriteFileAtomically(config, SmallGptConfig()).ok());
  CommandLine command_line;
  command_line.configs = {config};
  command_line.assignments =
      With({"model.layers=" + std::to_string(layers), "batch.size=48"}, assignments);
  return command_line;
}

StepEstimate EstimateOf(const StepTime& step, const Dialect& dialect, const Cluster& cluster) {
  auto estimate = step.Estimate(dialect, cluster, NetworkTime(cluster), Timeline::kKeep);
  EXPECT_TRUE(estimate.ok()) << estimate.status();
  // Timelines have no gaps, and their parts add up.
  for (const RankEstimate& rank : estimate->ranks) {
    double end = 0;
    for (const Interval& interval : rank.timeline) {
      EXPECT_DOUBLE_EQ(interval.begin, end);
      end = interval.end;
    }
    double parts = rank.compute + rank.optimizer + rank.bubble;
    for (const auto& [label, seconds] : rank.exposed) parts += seconds;
    EXPECT_NEAR(parts, end, 1e-9 * end);
    EXPECT_LE(end, estimate->seconds);
  }
  return *std::move(estimate);
}

TEST(StepTimeTest, OneForwardOneBackwardHasItsBubble) {
  const Dialect dialect = Of("");
  const Cluster cluster = Simple();
  for (const int micro_batches : {1, 4, 12}) {
    const StepTime step =
        Record(Gpt(4, {"mesh.pp=4", "cut.micro_batches=" + std::to_string(micro_batches),
                       "pipeline.balance=[2, 1, 1, 2]"}),
               dialect, cluster);
    const StepEstimate estimate = EstimateOf(step, dialect, cluster);
    EXPECT_NEAR(estimate.seconds, (micro_batches + 3) * 3, 1e-5) << micro_batches;
    for (const RankEstimate& rank : estimate.ranks) {
      EXPECT_NEAR(rank.compute, micro_batches * 3, 1e-5);
    }
    // The first stage waits for the rest, the last one for its first input, which is no bubble of
    // its own between actions.
    EXPECT_NEAR(estimate.ranks[0].bubble, 9, 1e-5);
  }
}

TEST(StepTimeTest, MessagesDelayTheStagesBehind) {
  const Dialect dialect = Of("");
  // 4 samples x 16 tokens x 32 numbers of 4 bytes take half a second.
  const Cluster cluster = Simple(4 * 16 * 32 * 4 / 0.5);
  const StepTime step = Record(
      Gpt(2, {"mesh.pp=2", "cut.micro_batches=12", "pipeline.balance=[2, 2]"}), dialect, cluster);
  const StepEstimate estimate = EstimateOf(step, dialect, cluster);
  // Forward, there, forward and backward, back, ...: with two stages a turn of 1F1B is a message
  // each way longer than the work.
  EXPECT_GT(estimate.seconds, (12 + 1) * 3 + 1);
  EXPECT_GT(estimate.ranks[1].exposed.at("activations"), 0.5);
  EXPECT_GT(estimate.ranks[0].exposed.at("activation gradients"), 0.5);
}

TEST(StepTimeTest, GradientsOverlapWhereTheDialectSaysSo) {
  const Cluster cluster = Simple(1e5);
  const CommandLine ddp =
      Gpt(4, {"mesh.dp=2", "cut.micro_batches=2", "train.clip_norm=0",
              "data_parallel.first_bucket_bytes=1", "data_parallel.bucket_bytes=60000"});
  const auto estimate = [&](const std::string& overlaps) {
    const Dialect dialect =
        Of("free_calls = [\"loss\", \"norm\", \"overflow\"]\noverlaps = " + overlaps);
    return EstimateOf(Record(ddp, dialect, cluster), dialect, cluster);
  };
  const StepEstimate apart = estimate("false"), beside = estimate("true");
  double reduction = 0;  // seconds of all buckets
  const StepTime step = Record(ddp, Of(""), cluster);
  const RecordedStep& recorded = step.run().steps[0];
  for (const int32_t stretch : step.run().Stretches(0)) {
    for (const RecordedTask& task : recorded.stretches[stretch].tasks) {
      if (task.kind != RecordedTask::Kind::kCall) continue;
      const RecordedCall& call = recorded.calls[task.index];
      if (call.label != "gradients") continue;
      reduction += NetworkTime(cluster).Collective(
          Operation::kAllReduce, static_cast<double>(PayloadBytes(call.signature)),
          {.ranks = 2, .per_node = 2, .at_once = 1});
    }
  }
  EXPECT_GT(reduction, 1);
  EXPECT_NEAR(apart.seconds, 2 * 4 * 3 + reduction, 1e-6);
  EXPECT_NEAR(apart.ranks[0].exposed.at("gradients"), reduction, 1e-6);
  EXPECT_LT(beside.seconds, apart.seconds);
  EXPECT_GT(beside.seconds, 2 * 4 * 3);
}

// Calls take no time, but ranks that meet lose a tenth of the time since they last met.
class LateRanks final : public CommTime {
 public:
  double Collective(Operation, double, const GroupPlacement&) const override { return 0; }
  double Message(double, bool, int) const override { return 0; }
  double Wait(double apart, const GroupPlacement& placement) const override {
    return placement.ranks > 1 ? apart / 10 : 0;
  }
  bool HoldsUpCompute(const GroupPlacement&) const override { return true; }
};

TEST(StepTimeTest, RanksThatMeetWaitForTheLast) {
  const Dialect dialect = Of("");
  const Cluster cluster = Simple();
  // Two layers of a micro-batch, a second forward and two backward each; the last kernel that takes
  // time is followed by a meeting, and so all of it counts, however many meetings there are.
  for (const Assignments& mesh : {Assignments{"mesh.dp=2"}, Assignments{"mesh.tp=2"},
                                  Assignments{"mesh.dp=2", "data_parallel.first_bucket_bytes=1",
                                              "data_parallel.bucket_bytes=60000"}}) {
    const StepTime step = Record(Gpt(2, With({"cut.micro_batches=1"}, mesh)), dialect, cluster);
    const auto estimate = step.Estimate(dialect, cluster, LateRanks());
    ASSERT_TRUE(estimate.ok()) << estimate.status();
    EXPECT_NEAR(estimate->seconds, 6 * 1.1, 1e-5) << mesh.front();
    EXPECT_NEAR(estimate->ranks[0].compute, 6, 1e-5) << mesh.front();
  }
}

TEST(StepTimeTest, AHostThatIsSlowBindsAndGapsShow) {
  const Cluster cluster = Simple();
  const CommandLine run = Gpt(2, {"cut.micro_batches=2"});
  const auto seconds = [&](const std::string& fitted) {
    const Dialect dialect = Of("[fitted]\n" + fitted);
    return EstimateOf(Record(run, dialect, cluster), dialect, cluster).seconds;
  };
  // Two layers of two micro-batches, a second forward and two backward each.
  EXPECT_DOUBLE_EQ(seconds("host_forward = 0.5"), 12);
  EXPECT_DOUBLE_EQ(seconds("host_forward = 3\nhost_backward = 1"), 4 * (3 + 2));
  // In backward the host needs a second and the kernel two: it binds in forward alone.
  EXPECT_DOUBLE_EQ(seconds("host_forward = 3\nhost_backward = 4\nvisible_gaps = 0.5"), 4 * (3 + 4));
}

TEST(StepTimeTest, NumbersChangeWithoutRecordingAgain) {
  Dialect dialect = Of("[fitted]\nhost_forward = 0.5");
  const Cluster cluster = Simple();
  const StepTime step = Record(Gpt(2, {"cut.micro_batches=2"}), dialect, cluster);
  EXPECT_DOUBLE_EQ(EstimateOf(step, dialect, cluster).seconds, 12);
  dialect.fitted()["host_forward"] = 3;
  EXPECT_DOUBLE_EQ(EstimateOf(step, dialect, cluster).seconds, 20);
  Cluster slower = cluster;
  slower.device.bandwidth = 0.1;
  EXPECT_DOUBLE_EQ(EstimateOf(step, dialect, slower).seconds, 120);
}

TEST(StepTimeTest, MoreRanksThanDevicesAreRefused) {
  auto run = RecordRun(Gpt(2, {"mesh.dp=2"}), EnginePreset("plan", {}), MakeModel);
  ASSERT_TRUE(run.ok()) << run.status();
  Cluster cluster = Simple();
  cluster.name = "small";
  cluster.node.devices = 1;
  const auto step =
      StepTime::Create(std::make_shared<const RecordedRun>(*std::move(run)), Of(""), cluster);
  EXPECT_NE(step.status().message().find("cluster small has 1 devices, and the mesh 2 ranks"),
            std::string::npos)
      << step.status();
}

TEST(StepTimeTest, ADialectWithoutARuleIsRefused) {
  const std::string path = testing::TempDir() + "/empty.toml";
  ASSERT_TRUE(WriteFileAtomically(path, "name = \"empty\"\n").ok());
  auto run = RecordRun(Gpt(2, {}), EnginePreset("plan", {}), MakeModel);
  ASSERT_TRUE(run.ok()) << run.status();
  const auto step = StepTime::Create(std::make_shared<const RecordedRun>(*std::move(run)),
                                     *Dialect::Read(path), Simple());
  EXPECT_NE(step.status().message().find("empty has no rule for kernel"), std::string::npos)
      << step.status();
}

}  // namespace
}  // namespace lockstep
