#include "strategies/ddp/ddp.h"

#include <memory>
#include <string>
#include <tuple>
#include <vector>

#include "absl/strings/str_cat.h"
#include "core/autograd/operations.h"
#include "core/nn/layers.h"
#include "gtest/gtest.h"
#include "models/models.h"
#include "strategies/single/single.h"
#include "strategies/testing/run_strategy.h"

namespace lockstep {
namespace {

class DdpEqualsSingleTest : public ::testing::TestWithParam<std::tuple<SmallModel, int, int>> {};

TEST_P(DdpEqualsSingleTest, ToTheBit) {
  const auto [model, shards, micro_batches] = GetParam();
  const std::string config = SmallConfig(model);
  const std::string cut = absl::StrCat("cut.micro_batches=", micro_batches);
  const auto single =
      RunStrategy(SingleStrategy(), MakeModel, config, {cut, absl::StrCat("cut.shards=", shards)});
  // Small buckets, so that several are in flight.
  const auto ddp =
      RunStrategy(DdpStrategy(), MakeModel, config,
                  {cut, absl::StrCat("mesh.dp=", shards), "data_parallel.first_bucket_bytes=4096",
                   "data_parallel.bucket_bytes=100000"});
  ASSERT_EQ(ddp.size(), static_cast<size_t>(shards));
  ASSERT_EQ(single[0].losses.size(), 4u);
  EXPECT_NE(single[0].losses[0], single[0].losses[3]);
  ExpectSameBits(ddp, single);
}

INSTANTIATE_TEST_SUITE_P(Meshes, DdpEqualsSingleTest,
                         ::testing::Combine(::testing::Values(SmallModel::kGpt, SmallModel::kResNet,
                                                              SmallModel::kUNet),
                                            ::testing::Values(1, 2, 4), ::testing::Values(1, 3)),
                         [](const auto& parameters) {
                           return absl::StrCat(Name(std::get<0>(parameters.param)), "Shards",
                                               std::get<1>(parameters.param), "MicroBatches",
                                               std::get<2>(parameters.param));
                         });

// Five samples a shard: micro-batches of 2, 2 and 1; and one sample each where they are too few.
TEST(DdpTest, UnevenMicroBatchesGiveTheSameBits) {
  for (const std::string& config : {SmallGptConfig(), SmallResNetConfig()}) {
    for (const char* micro_batches : {"cut.micro_batches=3", "cut.micro_batches=8"}) {
      const Assignments cut = {"batch.size=10", micro_batches};
      const auto ddp = RunStrategy(DdpStrategy(), MakeModel, config, With(cut, {"mesh.dp=2"}));
      ExpectSameBits(ddp,
                     RunStrategy(SingleStrategy(), MakeModel, config, With(cut, {"cut.shards=2"})));
    }
  }
}

TEST(DdpTest, CuttingTheBatchOtherwiseChangesTheBits) {
  // What the equality above rests on is visible: another order of sums is another curve.
  const auto one = RunStrategy(SingleStrategy(), MakeModel, SmallGptConfig(), {});
  const auto two = RunStrategy(SingleStrategy(), MakeModel, SmallGptConfig(), {"cut.shards=2"});
  EXPECT_NE(one[0].parameter_hash, two[0].parameter_hash);
  EXPECT_NEAR(one[0].losses[0], two[0].losses[0], 0.1);
}

TEST(DdpTest, BytesOnTheWireEqualTheTheory) {
  for (int ranks : {2, 4}) {
    const auto reports =
        RunStrategy(DdpStrategy(), MakeModel, SmallGptConfig(), {absl::StrCat("mesh.dp=", ranks)});
    // 16 tokens, width 32, 2 layers, context 16: embeddings, blocks, last norm, and the head, whose
    // use of the first embedding has a gradient of its own.
    const double parameters = 16 * 32 + 16 * 32 + 2 * (12 * 32 * 32 + 13 * 32) + 2 * 32 + 16 * 32;
    for (const RankReport& report : reports) {
      const CommTotal gradients = report.traffic.Of("gradients");
      EXPECT_DOUBLE_EQ(gradients.wire_bytes / 4, 2 * parameters * 4 * (ranks - 1) / ranks);
      for (const CostPrediction::Traffic& predicted : report.prediction.traffic) {
        EXPECT_DOUBLE_EQ(report.traffic.Of(predicted.operation, predicted.label).wire_bytes / 4,
                         predicted.wire_bytes)
            << predicted.label;
      }
      EXPECT_EQ(report.traffic.by_kind.size(), report.prediction.traffic.size());
    }
  }
}

TEST(DdpTest, MemoryIsWhatThePredictionSays) {
  const auto reports = RunStrategy(DdpStrategy(), MakeModel, SmallResNetConfig(), {"mesh.dp=2"});
  for (const RankReport& report : reports) {
    for (const CostPrediction::Memory& predicted : report.prediction.memory) {
      const auto measured = static_cast<double>(report.memory.peak(predicted.memory_class));
      // Each tensor is rounded up to 64 bytes: the small ones make 2 % of this small model.
      EXPECT_GE(measured, predicted.bytes) << Name(predicted.memory_class);
      EXPECT_LE(measured, 1.02 * predicted.bytes) << Name(predicted.memory_class);
    }
  }
}

TEST(DdpTest, GradientsAreReducedInSeveralBucketsAndOverlap) {
  const auto reports =
      RunStrategy(DdpStrategy(), MakeModel, SmallGptConfig(),
                  {"mesh.dp=2", "cut.micro_batches=3", "data_parallel.first_bucket_bytes=4096",
                   "data_parallel.bucket_bytes=20000"});
  // Accumulation is without communication: the calls of a step do not multiply by micro-batches.
  const int64_t calls = reports[0].traffic.Of("gradients").calls / 4;
  EXPECT_GT(calls, 3);
  EXPECT_LT(calls, 15);
}

// A model of which a part is never used: its gradients are zero, and nobody waits for them.
class PartlyUsed : public Block {
 public:
  PartlyUsed() : Block("partly"), used_(AddChild<LinearLayer>("used", 32 * 32 * 3, 10)) {
    AddChild<LinearLayer>("unused", 64, 64);
  }

 protected:
  Variables Forward(Pass& pass, Variables inputs) override {
    const int64_t batch = inputs[0].shape()[0];
    return {used_(pass, Reshape(pass.tape, inputs[0], {batch, 32 * 32 * 3}))};
  }

 private:
  LinearLayer& used_;
};

absl::StatusOr<Model> MakePartlyUsed(const Config&, const Dataset&) {
  Model model;
  model.blocks.push_back(std::make_unique<PartlyUsed>());
  return model;
}

TEST(DdpTest, UnusedParametersDoNotHang) {
  const auto single =
      RunStrategy(SingleStrategy(), MakePartlyUsed, SmallResNetConfig(), {"cut.shards=2"});
  const auto ddp = RunStrategy(DdpStrategy(), MakePartlyUsed, SmallResNetConfig(),
                               {"mesh.dp=2", "data_parallel.first_bucket_bytes=1000"});
  ExpectSameBits(ddp, single);
}

// Stopped after two of four steps and resumed under another strategy: the same four losses and
// bits.
TEST(DdpTest, ResumesWhatSingleSavedAndTheOtherWayRound) {
  const std::string config = SmallGptConfig() + "[checkpoint]\nevery = 1\n";
  const std::vector<std::string> all = {"schedule.kind=cosine", "schedule.total_steps=4"};
  auto half = all;
  half.push_back("train.steps=2");
  const auto with = [](std::vector<std::string> assignments, const std::string& more) {
    assignments.push_back(more);
    return assignments;
  };
  const auto whole = RunStrategy(SingleStrategy(), MakeModel, config, with(all, "cut.shards=2"));

  RunStrategy(SingleStrategy(), MakeModel, config, with(half, "cut.shards=2"));
  const auto ddp = ResumeStrategy(DdpStrategy(), MakeModel, config, with(all, "mesh.dp=2"));
  RunStrategy(DdpStrategy(), MakeModel, config, with(half, "mesh.dp=2"));
  const auto single =
      ResumeStrategy(SingleStrategy(), MakeModel, config, with(all, "cut.shards=2"));
  const std::vector<double> rest(whole[0].losses.begin() + 2, whole[0].losses.end());
  for (const auto* resumed : {&ddp, &single}) {
    EXPECT_EQ((*resumed)[0].losses, rest);
    EXPECT_EQ((*resumed)[0].parameter_hash, whole[0].parameter_hash);
  }
}

TEST(DdpTest, AMemoryLimitEndsInOneMessage) {
  const absl::Status status = FailStrategy(DdpStrategy(), MakeModel, SmallResNetConfig(),
                                           {"mesh.dp=2", "memory.limit=3000000"});
  EXPECT_TRUE(absl::IsResourceExhausted(status)) << status;
  EXPECT_NE(std::string(status.message()).find("out of memory"), std::string::npos) << status;
  EXPECT_NE(std::string(status.message()).find("optimizer_state"), std::string::npos) << status;
}

TEST(DdpTest, RefusesWhatItCannotCarry) {
  const absl::Status axis = FailStrategy(DdpStrategy(), MakeModel, SmallGptConfig(), {"mesh.pp=2"});
  EXPECT_NE(std::string(axis.message()).find("'ddp' has mesh.pp = 1"), std::string::npos) << axis;
  const absl::Status batch =
      FailStrategy(DdpStrategy(), MakeModel, SmallGptConfig(), {"mesh.dp=5"});
  EXPECT_NE(std::string(batch.message()).find("do not divide into 5 shards"), std::string::npos)
      << batch;
}

}  // namespace
}  // namespace lockstep
