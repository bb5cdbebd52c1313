// zero1 and zero2: the bits of single at the cost that ZeRO's paper states.

#include <string>
#include <tuple>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "models/models.h"
#include "strategies/ddp/ddp.h"
#include "strategies/fsdp/fsdp.h"
#include "strategies/lora/lora.h"
#include "strategies/single/single.h"
#include "strategies/testing/run_strategy.h"
#include "strategies/tp/tp.h"
#include "strategies/zero1/zero1.h"
#include "strategies/zero2/zero2.h"

namespace lockstep {
namespace {

std::vector<StrategyDefinition> Stages() { return {Zero1Strategy(), Zero2Strategy()}; }

class ZeroTest : public ::testing::TestWithParam<std::tuple<SmallModel, int, int>> {};

TEST_P(ZeroTest, HasTheBitsOfSingleAtThePredictedCost) {
  const auto [model, shards, micro_batches] = GetParam();
  const std::string config = SmallConfig(model);
  const Assignments cut = {"batch.size=24", absl::StrCat("cut.micro_batches=", micro_batches)};
  const auto single = RunStrategy(SingleStrategy(), MakeModel, config,
                                  With(cut, {absl::StrCat("cut.shards=", shards)}));
  for (const StrategyDefinition& strategy : Stages()) {
    SCOPED_TRACE(strategy.name);
    const auto ranks =
        RunStrategy(strategy, MakeModel, config, With(cut, {absl::StrCat("mesh.dp=", shards)}));
    ExpectSameBits(ranks, single);
    ExpectPredictedCosts(ranks);
  }
}

INSTANTIATE_TEST_SUITE_P(Meshes, ZeroTest,
                         ::testing::Combine(::testing::Values(SmallModel::kGpt, SmallModel::kResNet,
                                                              SmallModel::kUNet),
                                            ::testing::Values(1, 2, 3, 4), ::testing::Values(1, 2)),
                         [](const auto& parameters) {
                           return absl::StrCat(Name(std::get<0>(parameters.param)), "Shards",
                                               std::get<1>(parameters.param), "MicroBatches",
                                               std::get<2>(parameters.param));
                         });

// With replicas of shards, in 16 bits with fp32 masters, and where nothing divides by the ranks.
TEST(ZeroStagesTest, HaveTheBitsOfSingleInOtherSettings) {
  for (const Assignments& setting :
       {Assignments{"mesh.replicas=2", "mesh.dp=2"}, Assignments{"mesh.dp=4", "model.width=34"},
        Assignments{"mesh.dp=4", "precision.compute=bf16"},
        Assignments{"mesh.dp=4", "precision.compute=bf16", "precision.reduce=bf16"}}) {
    Assignments of_single = {"cut.shards=4"};
    for (const std::string& assignment : setting) {
      if (!assignment.starts_with("mesh.")) of_single.push_back(assignment);
    }
    const auto single = RunStrategy(SingleStrategy(), MakeModel, SmallGptConfig(), of_single);
    for (const StrategyDefinition& strategy : Stages()) {
      SCOPED_TRACE(absl::StrCat(strategy.name, " ", setting.front(), " ", setting.back()));
      const auto ranks = RunStrategy(strategy, MakeModel, SmallGptConfig(), setting);
      ExpectSameBits(ranks, single);
      ExpectPredictedCosts(ranks);
    }
  }
}

TEST(ZeroStagesTest, HaveTheBitsOfTpWithDividedLayers) {
  const Assignments mesh = {"mesh.dp=2", "mesh.tp=2"};
  const auto tp = RunStrategy(TpStrategy(), MakeModel, SmallGptConfig(), mesh);
  for (const StrategyDefinition& strategy : Stages()) {
    SCOPED_TRACE(strategy.name);
    const auto ranks = RunStrategy(strategy, MakeModel, SmallGptConfig(), mesh);
    ExpectSameBits(ranks, tp);
    ExpectPredictedCosts(ranks);
  }
}

// Frozen parameters stay whole, and are gathered once, before the first step.
TEST(ZeroStagesTest, TrainAdaptersAsLoraDoes) {
  const Assignments adapters = {"lora.layers=[\"*\"]", "lora.rank=4"};
  const auto lora =
      RunStrategy(LoraStrategy(), MakeModel, SmallGptConfig(), With(adapters, {"cut.shards=2"}));
  for (const StrategyDefinition& strategy : Stages()) {
    SCOPED_TRACE(strategy.name);
    const auto ranks =
        RunStrategy(strategy, MakeModel, SmallGptConfig(), With(adapters, {"mesh.dp=2"}));
    ExpectSameBits(ranks, lora);
    ExpectPredictedCosts(ranks);
  }
}

// Rajbhandari et al. 2020, figure 1, with K = 8 bytes of AdamW's state in fp32: of 4 + 4 + 8 bytes
// a parameter, stage 1 divides 8 by the ranks and stage 2 4 + 8. Beside its shard,
// stage 2 holds the whole gradients of three blocks: two are being reduced, one is being computed.
TEST(ZeroStagesTest, DivideTheMemoryAsThePaperSays) {
  const Assignments mesh = {"mesh.dp=4", "model.width=64", "model.layers=6", "cut.micro_batches=1"};
  const double block = 12 * 64 * 64 + 13 * 64;
  const double parameters = 16 * 64 + 16 * 64 + 6 * block + 2 * 64;
  const auto bytes = [&](const StrategyDefinition& strategy, MemoryClass memory_class) {
    const auto ranks = RunStrategy(strategy, MakeModel, SmallGptConfig(), mesh);
    return static_cast<double>(ranks[0].memory.peak(memory_class)) / parameters;
  };
  for (const StrategyDefinition& strategy : Stages()) {
    SCOPED_TRACE(strategy.name);
    EXPECT_NEAR(bytes(strategy, MemoryClass::kParameters), 4, 0.05);
    EXPECT_NEAR(bytes(strategy, MemoryClass::kOptimizerState), 8.0 / 4, 0.05);
  }
  EXPECT_NEAR(bytes(Zero1Strategy(), MemoryClass::kGradients), 4, 0.05);
  const double three_blocks = 4 * 3 * block / parameters;
  EXPECT_NEAR(bytes(Zero2Strategy(), MemoryClass::kGradients), 4.0 / 4 + three_blocks, 0.05);
}

// The traffic of an all-reduce: nothing is paid for the division.
// All but the gradient of the tied head, whose sum nobody needs whole.
TEST(ZeroStagesTest, SendAsMuchAsDdp) {
  constexpr double kHead = 16 * 64 * 4 * 3.0 / 4;  // bytes of 16 tokens, a step and rank
  const Assignments mesh = {"mesh.dp=4", "model.width=64"};
  const auto ddp = RunStrategy(DdpStrategy(), MakeModel, SmallGptConfig(), mesh);
  for (const StrategyDefinition& strategy : Stages()) {
    SCOPED_TRACE(strategy.name);
    const auto ranks = RunStrategy(strategy, MakeModel, SmallGptConfig(), mesh);
    EXPECT_EQ(ranks[0].traffic.Of(Operation::kReduceScatter, "gradients").wire_bytes +
                  ranks[0].traffic.Of(Operation::kAllGather, "parameters").wire_bytes,
              ddp[0].traffic.Of(Operation::kAllReduce, "gradients").wire_bytes - 4 * kHead);
  }
}

TEST(ZeroStagesTest, ResumeWhatOthersSavedAndTheOtherWayRound) {
  const std::string config = SmallGptConfig() + "[checkpoint]\nevery = 1\n";
  const Assignments all = {"schedule.kind=cosine", "schedule.total_steps=4"};
  const auto whole = RunStrategy(SingleStrategy(), MakeModel, config, With(all, {"cut.shards=4"}));
  RunStrategy(SingleStrategy(), MakeModel, config, With(all, {"cut.shards=4", "train.steps=1"}));
  ResumeStrategy(Zero1Strategy(), MakeModel, config, With(all, {"mesh.dp=4", "train.steps=2"}));
  ResumeStrategy(Zero2Strategy(), MakeModel, config, With(all, {"mesh.dp=4", "train.steps=3"}));
  const auto last = ResumeStrategy(FsdpStrategy(), MakeModel, config, With(all, {"mesh.dp=4"}));
  EXPECT_EQ(last[0].losses, std::vector<double>{whole[0].losses[3]});
  EXPECT_EQ(last[0].parameter_hash, whole[0].parameter_hash);
}

}  // namespace
}  // namespace lockstep
