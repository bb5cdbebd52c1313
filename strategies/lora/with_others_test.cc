// Adapters under the strategies of many ranks, against the same on one.

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "models/models.h"
#include "strategies/ddp/ddp.h"
#include "strategies/fsdp/fsdp.h"
#include "strategies/fsdp_pipe/fsdp_pipe.h"
#include "strategies/gpipe/gpipe.h"
#include "strategies/layerwise/layerwise.h"
#include "strategies/lora/lora.h"
#include "strategies/testing/run_strategy.h"
#include "strategies/tp/tp.h"

namespace lockstep {
namespace {

// A run with adapters: their layers, and what else tests vary.
struct Adapted {
  std::string config;
  Assignments lora;

  std::vector<RankReport> Alone(const Assignments& assignments) const {
    return RunStrategy(LoraStrategy(), MakeModel, config, With(lora, assignments));
  }
  std::vector<RankReport> Under(const StrategyDefinition& strategy,
                                const Assignments& assignments) const {
    SCOPED_TRACE(absl::StrCat(strategy.name, " ", absl::StrJoin(assignments, " ")));
    auto reports = RunStrategy(strategy, MakeModel, config, With(lora, assignments));
    for (const RankReport& report : reports) ExpectPredictedTraffic(report);
    return reports;
  }
};

// Parts of packed projections and whole layers, splits of both kinds; both dropouts.
Adapted Gpt() {
  return {SmallGptConfig(),
          {R"(lora.layers=["*.qkv.q", "*.qkv.v", "*.projection", "*.network"])", "lora.rank=3",
           "lora.alpha=6", "lora.dropout=0.2"}};
}
// Only the second layer: whatever lies before its adapters needs no gradients.
Adapted LateGpt() {
  return {SmallGptConfig(), {R"(lora.layers=["blocks.1.attention.qkv"])", "lora.rank=2"}};
}
// Single projections, whole packed layers, both halves of the MLP.
Adapted Llama() {
  return {
      SmallLlamaConfig(),
      {R"(lora.layers=["*.qkv.k", "*.qkv.v", "blocks.0.network", "blocks.1.network.gate_up.gate"])",
       "lora.rank=2", "lora.dropout=0.1"}};
}
Adapted ResNet() {
  return {SmallResNetConfig(), {R"(lora.layers=["*"])", "lora.rank=2", "lora.dropout=0.1"}};
}

void ExpectBitsOfAlone(const std::vector<RankReport>& ranks, const std::vector<RankReport>& alone) {
  EXPECT_NE(alone[0].losses.front(), alone[0].losses.back());
  ExpectSameBits(ranks, alone);
}

// Memory as theory has it, within what alignment and buckets add.
void ExpectPredictedMemory(const std::vector<RankReport>& ranks, double margin) {
  for (const RankReport& report : ranks) {
    for (const CostPrediction::Memory& predicted : report.prediction.memory) {
      const auto measured = static_cast<double>(report.memory.peak(predicted.memory_class));
      const auto bytes = static_cast<double>(predicted.bytes);
      EXPECT_NEAR(measured, bytes, margin * bytes + 1024) << Name(predicted.memory_class);
    }
  }
}

class LoraWithOthersTest : public ::testing::TestWithParam<std::string> {
 protected:
  Adapted adapted() const {
    if (GetParam() == "Llama") return Llama();
    return GetParam() == "Gpt" ? Gpt() : GetParam() == "LateGpt" ? LateGpt() : ResNet();
  }
};

TEST_P(LoraWithOthersTest, DdpHasTheBits) {
  const auto alone = adapted().Alone({"cut.shards=2", "cut.micro_batches=2"});
  const auto ranks = adapted().Under(DdpStrategy(), {"mesh.dp=2", "cut.micro_batches=2"});
  ExpectBitsOfAlone(ranks, alone);
  ExpectPredictedMemory(ranks, 0.02);
  // The frozen base has neither gradient nor state.
  EXPECT_LT(ranks[0].memory.peak(MemoryClass::kOptimizerState),
            ranks[0].memory.peak(MemoryClass::kParameters) / 2);
}

TEST_P(LoraWithOthersTest, PipelinesHaveTheBits) {
  const Assignments cut = {"cut.micro_batches=4"};
  const auto alone = adapted().Alone(cut);
  ExpectBitsOfAlone(adapted().Under(LayerwiseStrategy(), With(cut, {"mesh.pp=2"})), alone);
  for (const char* stages : {"mesh.pp=2", "mesh.pp=4"}) {
    for (const char* schedule : {"gpipe", "1f1b", "zb_h1"}) {
      const auto ranks = adapted().Under(
          GPipeStrategy(), With(cut, {stages, absl::StrCat("pipeline.schedule=", schedule)}));
      ExpectBitsOfAlone(ranks, alone);
      ExpectPredictedMemory(ranks, 0.02);
    }
  }
  ExpectBitsOfAlone(
      adapted().Under(GPipeStrategy(), With(cut, {"mesh.pp=2", "pipeline.schedule=zb_v"})), alone);
  const auto shards = adapted().Alone({"cut.micro_batches=2", "cut.shards=2"});
  ExpectBitsOfAlone(
      adapted().Under(GPipeStrategy(), {"cut.micro_batches=2", "mesh.pp=2", "mesh.dp=2",
                                        "recompute.micro_batches=always"}),
      shards);
}

// The frozen base is sharded too; what it needs in backward is gathered, and no gradients of it
// travel.
TEST_P(LoraWithOthersTest, FsdpHasTheBits) {
  const Assignments cut = {"cut.micro_batches=2"};
  const auto alone = adapted().Alone(With(cut, {"cut.shards=2"}));
  for (const char* reshard : {"true", "false"}) {
    const auto ranks = adapted().Under(
        FsdpStrategy(), With(cut, {"mesh.dp=2", absl::StrCat("data_parallel.reshard=", reshard)}));
    ExpectBitsOfAlone(ranks, alone);
    ExpectPredictedMemory(ranks, 0.05);
  }
  const auto four = adapted().Alone({"cut.shards=4"});
  ExpectBitsOfAlone(adapted().Under(FsdpStrategy(), {"mesh.dp=2", "mesh.replicas=2"}), four);
  const auto neighbours = adapted().Under(FsdpStrategy(), {"mesh.dp=4", "data_parallel.reshard=2"});
  ExpectBitsOfAlone(neighbours, four);
  ExpectPredictedMemory(neighbours, 0.05);
}

// By hand, as the prediction knows what the strategy does: with adapters in the second layer alone,
// the first is not gathered for backward.
TEST(LoraTrafficTest, WhatNeedsNoGradientIsGatheredForForwardOnly) {
  const auto sent_with_adapters_in = [](int layer) {
    const Adapted gpt = {
        SmallGptConfig(),
        {absl::StrCat("lora.layers=[\"blocks.", layer, ".attention.qkv\"]"), "lora.rank=2"}};
    const auto ranks = gpt.Under(FsdpStrategy(), {"mesh.dp=2", "cut.micro_batches=3"});
    return ranks[0].traffic.Of(Operation::kAllGather, "parameters").wire_bytes /
           static_cast<double>(ranks[0].steps);
  };
  constexpr double kLayerBytes = 4 * (12 * 32 * 32 + 13 * 32), kOfOthers = 1.0 / 2;
  EXPECT_DOUBLE_EQ(sent_with_adapters_in(0) - sent_with_adapters_in(1),
                   3 * kLayerBytes * kOfOthers);
}

TEST_P(LoraWithOthersTest, ShardedPipelinesHaveTheBits) {
  const Assignments cut = {"cut.micro_batches=3"};
  const auto alone = adapted().Alone(With(cut, {"cut.shards=2"}));
  for (const char* unshard : {"step", "micro_batch"}) {
    for (const char* checkpoint : {"never", "always"}) {
      const auto ranks = adapted().Under(
          FsdpPipeStrategy(),
          With(cut, {"mesh.pp=2", "mesh.dp=2", absl::StrCat("data_parallel.unshard=", unshard),
                     absl::StrCat("recompute.micro_batches=", checkpoint)}));
      ExpectBitsOfAlone(ranks, alone);
      ExpectPredictedMemory(ranks, 0.05);
    }
  }
}

// A and B are cut as their layer is, dropout of the input with them; of the factor that is whole,
// gradients are summed.
TEST_P(LoraWithOthersTest, TensorParallelAgrees) {
  Assignments cut = {"cut.micro_batches=2", "cut.features=2"};
  if (GetParam() != "ResNet") cut.push_back("cut.tokens=2");
  const auto alone = adapted().Alone(cut);
  ExpectBitsOfAlone(adapted().Under(TpStrategy(), With(cut, {"mesh.tp=2"})), alone);
  if (GetParam() != "ResNet") {
    ExpectBitsOfAlone(
        adapted().Under(TpStrategy(),
                        With(cut, {"mesh.tp=2", "tensor_parallel.sequence_parallel=true"})),
        alone);
  }
  const auto shards = adapted().Alone(With(cut, {"cut.shards=2"}));
  for (const StrategyDefinition& strategy : {TpStrategy(), FsdpStrategy()}) {
    ExpectBitsOfAlone(adapted().Under(strategy, With(cut, {"mesh.tp=2", "mesh.dp=2"})), shards);
  }
  ExpectBitsOfAlone(adapted().Under(GPipeStrategy(), With(cut, {"mesh.pp=2", "mesh.tp=2"})), alone);
}

// Outputs that are gathered, of features that do not divide: of 7 hidden ones ranks have 4 and 3,
// or 2, 2, 2 and 1; of 10 classes 3, 3, 2 and 2; and of each B the same rows.
TEST(LoraUnevenColumnsTest, AgreeAlsoWhereTheyAreSharded) {
  const ModelFactory make_model = [](const Config& config, const Dataset& dataset) {
    absl::StatusOr<Model> model = MakeModel(config, dataset);
    if (model.ok()) model->split_plan = {{"net*.linear", SplitStyle::kColumnGathered}};
    return model;
  };
  const std::string config = R"(
      train = {steps = 6, seed = 7}
      model = {kind = "toy", hidden = 7}
      data = {kind = "shapes"}
      lora = {layers = ["*"], rank = 3, dropout = 0.1}
      batch = {size = 12}
      cut = {micro_batches = 2}
      optimizer = {kind = "adamw"}
      schedule = {learning_rate = 0.01}
      validation = {batches = 2}
      run = {threads = 1, timeout_seconds = 30})";
  const auto train = [&](const StrategyDefinition& strategy, const Assignments& mesh) {
    return RunStrategy(strategy, make_model, config, mesh);
  };
  const auto alone = train(LoraStrategy(), {"cut.shards=2", "cut.features=4"});
  EXPECT_NE(alone[0].losses.front(), alone[0].losses.back());
  for (const char* ranks : {"mesh.tp=2", "mesh.tp=4"}) {
    const Assignments mesh = {"mesh.dp=2", "cut.features=4", ranks};
    ExpectSameBits(train(TpStrategy(), mesh), alone);
    for (const char* reshard : {"data_parallel.reshard=true", "data_parallel.reshard=false"}) {
      ExpectSameBits(train(FsdpStrategy(), With(mesh, {reshard})), alone);
    }
  }
}

// What the base makes of the data is known before anything is trained, tied and sharded parameters
// included; and asking for it changes nothing.
TEST(LoraStartTest, IsValidatedAlikeByAll) {
  const Assignments cut = {"cut.micro_batches=2", "validation.at_start=true"};
  const auto alone = Gpt().Alone(With(cut, {"cut.shards=2"}));
  ASSERT_TRUE(alone[0].validation_at_start.has_value());
  EXPECT_NE(alone[0].validation_at_start->loss, alone[0].validation.loss);
  ExpectSameBits(Gpt().Alone({"cut.micro_batches=2", "cut.shards=2"}), alone);
  const auto expect = [&](const StrategyDefinition& strategy, const Assignments& mesh) {
    const auto ranks = Gpt().Under(strategy, With(cut, mesh));
    ExpectSameBits(ranks, alone);
    for (const RankReport& rank : ranks) {
      ASSERT_TRUE(rank.validation_at_start.has_value());
      EXPECT_EQ(rank.validation_at_start->loss, alone[0].validation_at_start->loss);
    }
  };
  expect(DdpStrategy(), {"mesh.dp=2"});
  expect(FsdpStrategy(), {"mesh.dp=2"});
  expect(LayerwiseStrategy(), {"mesh.dp=2", "mesh.pp=2"});
  expect(GPipeStrategy(), {"mesh.dp=2", "mesh.pp=2"});
  expect(FsdpPipeStrategy(), {"mesh.dp=2", "mesh.pp=2"});
}

// Adapters of a base from a file, in whatever way each run cuts both.
TEST(LoraCheckpointTest, AnyStrategyGoesOnFromAnyOther) {
  for (const char* precision : {"fp32", "bf16"}) {
    SCOPED_TRACE(precision);
    RunStrategy(DdpStrategy(), MakeModel, SmallGptConfig(), {"mesh.dp=2"});
    const std::string base = ::testing::TempDir() + "/with_others_test.base.safetensors";
    std::filesystem::copy_file(RunFolder() + "/checkpoints/step-00000004.safetensors", base,
                               std::filesystem::copy_options::overwrite_existing);
    Adapted gpt = Gpt();
    gpt.config += "[checkpoint]\nevery = 1\n";
    gpt.lora = With(gpt.lora, {absl::StrCat("model.init=", base),
                               absl::StrCat("precision.compute=", precision)});
    const auto alone = gpt.Alone({"cut.shards=2"});
    gpt.Under(FsdpStrategy(), {"mesh.dp=2", "train.steps=1"});
    const auto resume = [&gpt](const StrategyDefinition& strategy, const Assignments& options) {
      return ResumeStrategy(strategy, MakeModel, gpt.config, With(gpt.lora, options));
    };
    resume(LoraStrategy(), {"cut.shards=2", "train.steps=2"});
    resume(FsdpPipeStrategy(), {"mesh.pp=3", "mesh.dp=2", "train.steps=3"});
    const auto last = resume(DdpStrategy(), {"mesh.dp=2"});
    EXPECT_EQ(last[0].losses, std::vector<double>{alone[0].losses[3]});
    EXPECT_EQ(last[0].parameter_hash, alone[0].parameter_hash);
  }
}

INSTANTIATE_TEST_SUITE_P(Models, LoraWithOthersTest,
                         ::testing::Values("Gpt", "LateGpt", "Llama", "ResNet"),
                         [](const auto& parameters) { return parameters.param; });

}  // namespace
}  // namespace lockstep
