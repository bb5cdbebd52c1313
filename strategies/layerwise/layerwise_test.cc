#include "strategies/layerwise/layerwise.h"

#include <algorithm>
#include <memory>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "core/autograd/operations.h"
#include "core/nn/layers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "models/models.h"
#include "strategies/ddp/ddp.h"
#include "strategies/single/single.h"
#include "strategies/testing/run_strategy.h"

namespace lockstep {
namespace {

using ::testing::AllOf;
using ::testing::DoubleEq;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

// Contract 8.
void ExpectCosts(const std::vector<RankReport>& reports) {
  for (const RankReport& report : reports) {
    ExpectPredictedTraffic(report);
    for (const CostPrediction::Memory& predicted : report.prediction.memory) {
      const auto measured = static_cast<double>(report.memory.peak(predicted.memory_class));
      const auto bytes = static_cast<double>(predicted.bytes);
      // Each tensor is rounded up to 64 bytes: the small ones are some percent of a small stage.
      EXPECT_GE(measured, bytes) << Name(predicted.memory_class);
      EXPECT_LE(measured, 1.05 * bytes + 64) << Name(predicted.memory_class);
    }
  }
}

class LayerwiseEqualsSingleTest
    : public ::testing::TestWithParam<std::tuple<SmallModel, int, int, int>> {};

TEST_P(LayerwiseEqualsSingleTest, ToTheBitAtThePredictedCost) {
  const auto [model, stages, micro_batches, shards] = GetParam();
  const std::string config = SmallConfig(model);
  const std::string cut = absl::StrCat("cut.micro_batches=", micro_batches);
  const auto single =
      RunStrategy(SingleStrategy(), MakeModel, config, {cut, absl::StrCat("cut.shards=", shards)});
  const auto layerwise =
      RunStrategy(LayerwiseStrategy(), MakeModel, config,
                  {cut, absl::StrCat("mesh.pp=", stages), absl::StrCat("mesh.dp=", shards),
                   "data_parallel.first_bucket_bytes=4096", "data_parallel.bucket_bytes=100000"});
  ASSERT_EQ(layerwise.size(), static_cast<size_t>(stages * shards));
  EXPECT_NE(single[0].losses[0], single[0].losses[3]);
  ExpectSameBits(layerwise, single);
  ExpectCosts(layerwise);
}

INSTANTIATE_TEST_SUITE_P(Meshes, LayerwiseEqualsSingleTest,
                         ::testing::Combine(::testing::Values(SmallModel::kGpt, SmallModel::kResNet,
                                                              SmallModel::kUNet),
                                            ::testing::Values(2, 3, 4), ::testing::Values(1, 3),
                                            ::testing::Values(1, 2)),
                         [](const auto& parameters) {
                           return absl::StrCat(Name(std::get<0>(parameters.param)), "Stages",
                                               std::get<1>(parameters.param), "MicroBatches",
                                               std::get<2>(parameters.param), "Shards",
                                               std::get<3>(parameters.param));
                         });

// Five samples a shard: micro-batches of 2, 2 and 1, each kind announced to the next stage once.
TEST(LayerwiseTest, UnevenMicroBatchesGiveTheSameBits) {
  const Assignments cut = {"batch.size=10", "cut.micro_batches=3"};
  for (const std::string& config : {SmallGptConfig(), SmallResNetConfig()}) {
    const auto layerwise =
        RunStrategy(LayerwiseStrategy(), MakeModel, config, With(cut, {"mesh.pp=3", "mesh.dp=2"}));
    ExpectSameBits(layerwise,
                   RunStrategy(SingleStrategy(), MakeModel, config, With(cut, {"cut.shards=2"})));
    ExpectCosts(layerwise);
  }
}

TEST(LayerwiseTest, AnyBalanceGivesTheSameBits) {
  const auto single = RunStrategy(SingleStrategy(), MakeModel, SmallGptConfig(), {});
  for (const char* balance : {"[1, 3]", "[2, 2]", "[3, 1]"}) {
    const auto layerwise = RunStrategy(LayerwiseStrategy(), MakeModel, SmallGptConfig(),
                                       {"mesh.pp=2", absl::StrCat("pipeline.balance=", balance)});
    ExpectSameBits(layerwise, single);
  }
}

// Measuring runs another model on rank 0 before the run: of that nothing is left, neither in random
// numbers nor in statistics nor in the books.
TEST(LayerwiseTest, AMeasuredBalanceGivesTheSameBits) {
  for (const std::string& config : {SmallGptConfig(), SmallResNetConfig()}) {
    const auto single = RunStrategy(SingleStrategy(), MakeModel, config, {"cut.shards=2"});
    for (const char* balance : {"pipeline.balance=time", "pipeline.balance=size"}) {
      const auto layerwise =
          RunStrategy(LayerwiseStrategy(), MakeModel, config, {"mesh.pp=2", "mesh.dp=2", balance});
      ExpectSameBits(layerwise, single);
      ExpectCosts(layerwise);
    }
  }
}

TEST(LayerwiseTest, OneStageIsSingleAndWithShardsDdp) {
  for (const std::string& config : {SmallGptConfig(), SmallResNetConfig()}) {
    ExpectSameBits(RunStrategy(LayerwiseStrategy(), MakeModel, config, {}),
                   RunStrategy(SingleStrategy(), MakeModel, config, {}));
    const auto ddp = RunStrategy(DdpStrategy(), MakeModel, config, {"mesh.dp=3"});
    ExpectSameBits(RunStrategy(LayerwiseStrategy(), MakeModel, config, {"mesh.dp=3"}), ddp);
  }
}

// Two batches for three replicas: the third evaluates one of no samples, on all of its stages.
TEST(LayerwiseTest, ValidationTakesAllStagesOfAllReplicas) {
  const Assignments more = {"validation.every=2", "cut.micro_batches=2"};
  for (const std::string& config : {SmallGptConfig(), SmallResNetConfig()}) {
    const auto single =
        RunStrategy(SingleStrategy(), MakeModel, config, With(more, {"cut.shards=3"}));
    ExpectSameBits(
        RunStrategy(LayerwiseStrategy(), MakeModel, config, With(more, {"mesh.pp=3", "mesh.dp=3"})),
        single);
  }
}

TEST(LayerwiseTest, LessThanFp32GivesTheBitsOfSingle) {
  for (const std::string& config : {SmallGptConfig(), SmallResNetConfig()}) {
    for (const auto& [compute, reduce] : {std::pair("bf16", "bf16"), std::pair("fp16", "fp32")}) {
      const Assignments precision = {absl::StrCat("precision.compute=", compute),
                                     absl::StrCat("precision.reduce=", reduce)};
      const auto layerwise = RunStrategy(LayerwiseStrategy(), MakeModel, config,
                                         With(precision, {"mesh.pp=2", "mesh.dp=2"}));
      ExpectSameBits(layerwise, RunStrategy(SingleStrategy(), MakeModel, config,
                                            With(precision, {"cut.shards=2"})));
      ExpectCosts(layerwise);
    }
  }
}

TEST(LayerwiseTest, ARankHoldsItsBlocksOnly) {
  const auto memory = [](const RankReport& report, MemoryClass memory_class) {
    return static_cast<double>(report.memory.peak(memory_class));
  };
  // Six equal blocks, beside which embeddings and head are small.
  const Assignments model = {"model.width=64", "model.layers=6"};
  const auto single = RunStrategy(SingleStrategy(), MakeModel, SmallGptConfig(), model);
  const auto stages =
      RunStrategy(LayerwiseStrategy(), MakeModel, SmallGptConfig(), With(model, {"mesh.pp=3"}));
  for (const MemoryClass memory_class :
       {MemoryClass::kParameters, MemoryClass::kGradients, MemoryClass::kOptimizerState}) {
    for (const RankReport& stage : stages) {
      EXPECT_NEAR(memory(stage, memory_class) / memory(single[0], memory_class), 1.0 / 3, 0.02)
          << Name(memory_class);
    }
  }
}

TEST(LayerwiseTest, PredictsHowIdleRanksAre) {
  const auto idle = [](const Assignments& assignments) {
    std::vector<double> shares;
    for (const RankReport& report :
         RunStrategy(LayerwiseStrategy(), MakeModel, SmallGptConfig(), assignments)) {
      shares.push_back(report.prediction.bubble_fraction);
      if (shares.back() > 0) {
        EXPECT_GT(report.times.Of(Phase::kBubble), 0);
      }
    }
    return shares;
  };
  // A layer has 12 x 32 x 32 multiply-adds a token, and 2 x 16 x 32 of attention; the head 16 x 32.
  const double layer = 12 * 32 * 32 + 2 * 16 * 32, head = 16 * 32, all = 2 * layer + head;
  EXPECT_THAT(idle({"mesh.pp=2", "pipeline.balance=[2, 2]"}),
              ElementsAre(DoubleEq(1 - layer / all), DoubleEq(1 - (layer + head) / all)));
  EXPECT_THAT(idle({"mesh.pp=2", "pipeline.balance=[3, 1]"}),
              ElementsAre(DoubleEq(1 - 2 * layer / all), DoubleEq(1 - head / all)));
  EXPECT_THAT(idle({}), ElementsAre(0));
}

// The trace shows that ranks take turns: no two stages of a replica compute at the same time.
TEST(LayerwiseTest, OneStageWorksAtATime) {
  const auto reports =
      RunStrategy(LayerwiseStrategy(), MakeModel, SmallGptConfig(),
                  {"mesh.pp=3", "cut.micro_batches=2", "trace.first_step=1", "trace.steps=1"});
  std::vector<std::pair<int64_t, int64_t>> busy;  // start and end
  for (const RankReport& report : reports) {
    for (const TraceEvent& event : report.trace.events) {
      if (event.track != TraceTrack::kCompute) continue;
      if (event.name != "forward" && event.name != "backward") continue;
      busy.emplace_back(event.start_nanos, event.start_nanos + event.duration_nanos);
    }
  }
  ASSERT_EQ(busy.size(), 3u * 2 * 2);
  std::sort(busy.begin(), busy.end());
  for (size_t i = 0; i + 1 < busy.size(); ++i) EXPECT_LE(busy[i].second, busy[i + 1].first);
}

// Saved by stages and resumed without, and the other way round: the same losses and bits.
TEST(LayerwiseTest, AnyStrategyAndMeshResumesAnyOther) {
  const std::string config = SmallGptConfig() + "[checkpoint]\nevery = 1\n";
  const auto single = RunStrategy(SingleStrategy(), MakeModel, config, {"cut.shards=2"});
  RunStrategy(LayerwiseStrategy(), MakeModel, config, {"mesh.pp=3", "mesh.dp=2", "train.steps=1"});
  ResumeStrategy(SingleStrategy(), MakeModel, config, {"cut.shards=2", "train.steps=2"});
  ResumeStrategy(LayerwiseStrategy(), MakeModel, config,
                 {"mesh.pp=2", "mesh.dp=2", "train.steps=3"});
  const auto last = ResumeStrategy(DdpStrategy(), MakeModel, config, {"mesh.dp=2"});
  EXPECT_EQ(last[0].losses, std::vector<double>({single[0].losses.back()}));
  EXPECT_EQ(last[0].parameter_hash, single[0].parameter_hash);
}

TEST(LayerwiseTest, TheScaleOfLossesGoesThroughACheckpoint) {
  const std::string config = SmallGptConfig() + "[checkpoint]\nevery = 1\n";
  const Assignments fp16 = {"precision.compute=fp16", "precision.initial_scale=256",
                            "precision.interval=2"};
  const auto single = RunStrategy(SingleStrategy(), MakeModel, config, fp16);
  RunStrategy(LayerwiseStrategy(), MakeModel, config, With(fp16, {"mesh.pp=2", "train.steps=3"}));
  const auto last =
      ResumeStrategy(LayerwiseStrategy(), MakeModel, config, With(fp16, {"mesh.pp=3"}));
  EXPECT_EQ(last[0].loss_scale, single[0].loss_scale);
  EXPECT_EQ(last[0].parameter_hash, single[0].parameter_hash);
}

// --- what passes between stages
// -------------------------------------------------------------------

// Hands on [features, labels of no use, a copy of the images]: three tensors, of which the second
// is no float and the third has no gradient.
class ThreeOut : public Block {
 public:
  ThreeOut() : Block("three"), linear_(AddChild<LinearLayer>("linear", 32 * 32 * 3, 10)) {}

 protected:
  Variables Forward(Pass& pass, Variables inputs) override {
    const int64_t batch = inputs[0].shape()[0];
    const Variable flat = Reshape(pass.tape, inputs[0], {batch, 32 * 32 * 3});
    const Tensor numbers = pass.kernels().Empty({2, batch}, DType::kI32);
    for (int64_t i = 0; i < 2 * batch; ++i) numbers.data<int32_t>()[i] = static_cast<int32_t>(i);
    return {linear_(pass, flat), Variable(numbers), flat};
  }

 private:
  LinearLayer& linear_;
};

// Uses the first of three inputs twice, hands the second on and leaves the third alone.
class Between : public Block {
 public:
  explicit Between(const std::string& name)
      : Block(name), linear_(AddChild<LinearLayer>("linear", 10, 10)) {}

 protected:
  Variables Forward(Pass& pass, Variables inputs) override {
    Variable sum = Add(pass.tape, linear_(pass, inputs[0]), inputs[0]);
    return {sum, inputs[1], inputs[0], inputs[2]};
  }

 private:
  LinearLayer& linear_;
};

// Adds the first and third of its four inputs, and checks what has come with them.
class LastOne : public Block {
 public:
  LastOne() : Block("last"), linear_(AddChild<LinearLayer>("linear", 10, 10)) {}

 protected:
  Variables Forward(Pass& pass, Variables inputs) override {
    EXPECT_EQ(inputs.size(), 4u);
    EXPECT_EQ(inputs[1].value.dtype(), DType::kI32);
    EXPECT_FALSE(inputs[1].needs_gradient());
    for (int64_t i = 0; i < inputs[1].value.elements(); ++i) {
      EXPECT_EQ(inputs[1].value.data<int32_t>()[i], i);
    }
    EXPECT_FALSE(inputs[3].needs_gradient());
    return {linear_(pass, Add(pass.tape, inputs[0], inputs[2]))};
  }

 private:
  LinearLayer& linear_;
};

absl::StatusOr<Model> MakeWithSeveralTensors(const Config&, const Dataset&) {
  Model model;
  model.blocks.push_back(std::make_unique<ThreeOut>());
  model.blocks.push_back(std::make_unique<Between>("between"));
  model.blocks.push_back(std::make_unique<LastOne>());
  return model;
}

TEST(LayerwiseTest, SeveralTensorsAndOthersThanFloatsPassBetweenStages) {
  const auto single = RunStrategy(SingleStrategy(), MakeWithSeveralTensors, SmallResNetConfig(),
                                  {"cut.micro_batches=3"});
  for (const char* mesh : {"mesh.pp=2", "mesh.pp=3"}) {
    ExpectSameBits(RunStrategy(LayerwiseStrategy(), MakeWithSeveralTensors, SmallResNetConfig(),
                               {"cut.micro_batches=3", mesh}),
                   single);
  }
}

// --- what is refused
// ------------------------------------------------------------------------------

TEST(LayerwiseTest, AStageWithoutMemoryEndsTheRunInOneMessage) {
  // The first stage has the embeddings only; the other's 300 thousand parameters take 4.8 MB.
  const absl::Status status =
      FailStrategy(LayerwiseStrategy(), MakeModel, SmallGptConfig(),
                   {"mesh.pp=2", "pipeline.balance=[1, 7]", "model.layers=6", "model.width=64",
                    "memory.limit=4000000"});
  EXPECT_TRUE(absl::IsResourceExhausted(status)) << status;
  EXPECT_THAT(std::string(status.message()),
              AllOf(HasSubstr("rank 1: "), HasSubstr("out of memory")));
}

TEST(LayerwiseTest, RefusesWhatCannotBeDivided) {
  const auto message = [](const Assignments& assignments) {
    return std::string(
        FailStrategy(LayerwiseStrategy(), MakeModel, SmallGptConfig(), assignments).message());
  };
  EXPECT_THAT(message({"mesh.pp=2", "pipeline.balance=[1, 2]"}),
              AllOf(HasSubstr("pipeline.balance = [1, 2]"), HasSubstr("4 blocks")));
  EXPECT_THAT(message({"mesh.pp=2", "pipeline.balance=[4, 0]"}), HasSubstr("without blocks"));
  EXPECT_THAT(message({"mesh.pp=2", "pipeline.balance=tiem"}), HasSubstr("did you mean \"time\"?"));
  EXPECT_THAT(message({"mesh.pp=5", "pipeline.balance=time"}), HasSubstr("mesh.pp is 5"));
  EXPECT_THAT(message({"mesh.pp=5"}), HasSubstr("mesh.pp is 5, but the model has 4 blocks"));
  EXPECT_THAT(message({"pipeline.balances=[4]"}), HasSubstr("did you mean pipeline.balance"));
}

}  // namespace
}  // namespace lockstep
