// Adapters under the strategies of many ranks, against the same on one.

#include <cmath>
#include <cstdint>
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
Adapted ResNet() {
  return {SmallResNetConfig(), {R"(lora.layers=["*"])", "lora.rank=2", "lora.dropout=0.1"}};
}

void ExpectSameBits(const std::vector<RankReport>& ranks, const std::vector<RankReport>& alone) {
  ASSERT_FALSE(alone[0].losses.empty());
  EXPECT_NE(alone[0].losses.front(), alone[0].losses.back());
  for (const RankReport& rank : ranks) {
    EXPECT_EQ(rank.losses, alone[0].losses);
    EXPECT_EQ(rank.parameter_hash, alone[0].parameter_hash);
    EXPECT_EQ(rank.validation.loss, alone[0].validation.loss);
  }
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
    return GetParam() == "Gpt" ? Gpt() : GetParam() == "LateGpt" ? LateGpt() : ResNet();
  }
};

TEST_P(LoraWithOthersTest, DdpHasTheBits) {
  const auto alone = adapted().Alone({"batch.shards=2", "batch.micro_batches=2"});
  const auto ranks = adapted().Under(DdpStrategy(), {"mesh.dp=2", "batch.micro_batches=2"});
  ExpectSameBits(ranks, alone);
  ExpectPredictedMemory(ranks, 0.02);
  // Of the frozen base there is neither gradient nor state.
  EXPECT_LT(ranks[0].memory.peak(MemoryClass::kOptimizerState),
            ranks[0].memory.peak(MemoryClass::kParameters) / 2);
}

TEST_P(LoraWithOthersTest, PipelinesHaveTheBits) {
  const Assignments cut = {"batch.micro_batches=4"};
  const auto alone = adapted().Alone(cut);
  ExpectSameBits(adapted().Under(LayerwiseStrategy(), With(cut, {"mesh.pp=2"})), alone);
  for (const char* stages : {"mesh.pp=2", "mesh.pp=4"}) {
    for (const char* schedule : {"gpipe", "1f1b", "zb_h1"}) {
      const auto ranks = adapted().Under(
          GPipeStrategy(), With(cut, {stages, absl::StrCat("gpipe.schedule=", schedule)}));
      ExpectSameBits(ranks, alone);
      ExpectPredictedMemory(ranks, 0.02);
    }
  }
  const auto shards = adapted().Alone({"batch.micro_batches=2", "batch.shards=2"});
  ExpectSameBits(adapted().Under(GPipeStrategy(), {"batch.micro_batches=2", "mesh.pp=2",
                                                   "mesh.dp=2", "gpipe.checkpoint=always"}),
                 shards);
}

INSTANTIATE_TEST_SUITE_P(Models, LoraWithOthersTest, ::testing::Values("Gpt", "LateGpt", "ResNet"),
                         [](const auto& parameters) { return parameters.param; });

}  // namespace
}  // namespace lockstep
