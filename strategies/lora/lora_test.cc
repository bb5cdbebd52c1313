#include "strategies/lora/lora.h"

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "models/models.h"
#include "strategies/single/single.h"
#include "strategies/testing/run_strategy.h"

namespace lockstep {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

Assignments Adapting(const std::string& layers, const Assignments& more = {}) {
  return With({absl::StrCat("lora.layers=", layers), "lora.rank=2"}, more);
}
const char kQueriesAndValues[] = R"(["*.qkv.q", "*.qkv.v"])";
const char kAllLayers[] = R"(["blocks.*"])";

std::vector<RankReport> Adapt(const Assignments& assignments,
                              const std::string& config = SmallGptConfig()) {
  return RunStrategy(LoraStrategy(), MakeModel, config, assignments);
}

std::string Message(const Assignments& assignments) {
  return std::string(
      FailStrategy(LoraStrategy(), MakeModel, SmallGptConfig(), assignments).message());
}

std::string LastCheckpoint() { return RunFolder() + "/checkpoints/step-00000004.safetensors"; }

// Leaves a trained model to adapt.
std::string TrainBase(const std::string& config, const Assignments& assignments = {}) {
  RunStrategy(SingleStrategy(), MakeModel, config, assignments);
  const std::string base = ::testing::TempDir() + "/lora_test.base.safetensors";
  std::filesystem::copy_file(LastCheckpoint(), base,
                             std::filesystem::copy_options::overwrite_existing);
  return base;
}

// All kinds of layers are adapted, the MLP's with it, which the base computes fused; dropout of the
// base falls where it did.
TEST(LoraTest, StepZeroIsTheBaseToTheBit) {
  const std::string init = absl::StrCat("model.init=", TrainBase(SmallGptConfig()));
  const auto base = RunStrategy(SingleStrategy(), MakeModel, SmallGptConfig(), {init});
  for (const char* layers : {kQueriesAndValues, kAllLayers}) {
    const auto lora = Adapt(Adapting(layers, {init}));
    EXPECT_EQ(lora[0].losses[0], base[0].losses[0]) << layers;
    EXPECT_NE(lora[0].losses[1], base[0].losses[1]) << layers;
  }
}

// A frozen normalisation uses the running estimate, so what training computes before B has grown is
// what the base makes of it in evaluation.
TEST(LoraTest, TrainingNormalisesAsTheBaseDoesInEvaluation) {
  const auto base = RunStrategy(SingleStrategy(), MakeModel, SmallResNetConfig(), {});
  const std::string init = absl::StrCat("model.init=", TrainBase(SmallResNetConfig()));
  const auto still =
      Adapt(Adapting(R"(["*"])", {init, "lora.learning_rate=1e-30"}), SmallResNetConfig());
  EXPECT_EQ(still[0].validation.loss, base[0].validation.loss);
  const auto moved = Adapt(Adapting(R"(["*"])", {init}), SmallResNetConfig());
  EXPECT_NE(moved[0].validation.loss, base[0].validation.loss);
}

// Contract 8 for adapters: gradients and optimizer state are theirs alone.
TEST(LoraTest, MemoryIsOfTheAdaptersOnly) {
  // In each of two layers A [2, 32] and B [32, 2] for queries and for values.
  constexpr int64_t kAdapters = 2 * 2 * (2 * 32 + 32 * 2);
  constexpr int64_t kBase =
      16 * 32 + 16 * 32 + 2 * (12 * 32 * 32 + 13 * 32) + 2 * 32;  // as GPT-2 counts
  struct Policy {
    std::string precision;
    int64_t parameter, gradient, optimizer;
  };
  for (const Policy& policy : {Policy{"fp32", 4, 4, 8}, Policy{"bf16", 2, 2, 12}}) {
    SCOPED_TRACE(policy.precision);
    const auto reports =
        Adapt(Adapting(kQueriesAndValues, {absl::StrCat("precision.compute=", policy.precision)}));
    const RankReport& report = reports[0];
    EXPECT_EQ(report.memory.peak(MemoryClass::kParameters), (kBase + kAdapters) * policy.parameter);
    EXPECT_EQ(report.memory.peak(MemoryClass::kGradients), kAdapters * policy.gradient);
    EXPECT_EQ(report.memory.peak(MemoryClass::kOptimizerState), kAdapters * policy.optimizer);
    for (const CostPrediction::Memory& predicted : report.prediction.memory) {
      EXPECT_EQ(report.memory.peak(predicted.memory_class), predicted.bytes)
          << Name(predicted.memory_class);
    }
  }
}

TEST(LoraTest, HasARateAndADecayOfItsOwn) {
  const auto rates = Adapt(Adapting(kQueriesAndValues, {"lora.learning_rate=0.02"}));
  const auto same = Adapt(Adapting(kQueriesAndValues, {"schedule.learning_rate=0.02"}));
  EXPECT_EQ(rates[0].losses, same[0].losses);
  EXPECT_NE(rates[0].losses, Adapt(Adapting(kQueriesAndValues))[0].losses);
  const auto decays = Adapt(Adapting(kQueriesAndValues, {"lora.weight_decay=0.5"}));
  const auto alike = Adapt(Adapting(kQueriesAndValues, {"optimizer.weight_decay=0.5"}));
  EXPECT_EQ(decays[0].parameter_hash, alike[0].parameter_hash);
  EXPECT_NE(decays[0].parameter_hash, Adapt(Adapting(kQueriesAndValues))[0].parameter_hash);
}

TEST(LoraTest, ScaleAndDropoutMatter) {
  const auto plain = Adapt(Adapting(kQueriesAndValues));
  for (const char* option : {"lora.alpha=3", "lora.rank_stabilised=true", "lora.dropout=0.2"}) {
    EXPECT_NE(Adapt(Adapting(kQueriesAndValues, {option}))[0].parameter_hash,
              plain[0].parameter_hash)
        << option;
  }
}

TEST(LoraTest, CheckpointsHoldAdaptersAloneAndGoOnFromThem) {
  const std::string init = absl::StrCat("model.init=", TrainBase(SmallGptConfig()));
  const Assignments options = Adapting(kQueriesAndValues, {init, "lora.dropout=0.1"});
  const auto straight = Adapt(options);
  // Three fp32 numbers for each of the adapters' 512, and a header; the base has 26,752.
  EXPECT_LT(std::filesystem::file_size(LastCheckpoint()), 12000u);
  Adapt(With(options, {"train.steps=2"}));
  const auto resumed = ResumeStrategy(LoraStrategy(), MakeModel, SmallGptConfig(), options);
  EXPECT_EQ(resumed[0].parameter_hash, straight[0].parameter_hash);
  EXPECT_EQ(resumed[0].losses.back(), straight[0].losses.back());
}

std::string ResumeMessage(const std::string& config, const Assignments& assignments) {
  const auto status = FailToResume(LoraStrategy(), MakeModel, config, assignments);
  return std::string(status.message());
}

TEST(LoraTest, CheckpointsOfAnotherBaseAreRefused) {
  const std::string base = TrainBase(SmallGptConfig());
  const std::string init = absl::StrCat("model.init=", base);
  Adapt(Adapting(kQueriesAndValues, {init, "train.steps=2"}));
  EXPECT_THAT(ResumeMessage(SmallGptConfig(), Adapting(kQueriesAndValues)),
              AllOf(HasSubstr("its adapters were trained on another base (hash "),
                    HasSubstr("model.init")));
  // Other adapters are another model.
  EXPECT_THAT(ResumeMessage(SmallGptConfig(), Adapting(kAllLayers, {init})),
              HasSubstr("Resume with the [model] table and the [lora] table that wrote it"));
  EXPECT_THAT(ResumeMessage(SmallGptConfig(), Adapting(kQueriesAndValues, {init, "lora.alpha=9"})),
              HasSubstr("[lora]"));
  // A base that is gone is missed before anything is computed.
  std::filesystem::remove(base);
  EXPECT_THAT(ResumeMessage(SmallGptConfig(), Adapting(kQueriesAndValues, {init})),
              HasSubstr("model.init: cannot read"));
}

TEST(LoraTest, MistakesAreNamed) {
  EXPECT_THAT(Message({}), HasSubstr("the table [lora] is missing"));
  EXPECT_THAT(Message({"lora.rank=2"}), HasSubstr("lora.layers"));
  EXPECT_THAT(Message({"lora.layers=[]"}), HasSubstr("names no layer to adapt"));
  EXPECT_THAT(Message(Adapting(R"(["*.qvk"])")),
              AllOf(HasSubstr("lora.layers: no layer that can be adapted matches '*.qvk'; there "
                              "are "),
                    HasSubstr("blocks.0.attention.qkv")));
  EXPECT_THAT(Message(Adapting(kQueriesAndValues, {"lora.rnk=3"})),
              HasSubstr("unknown key lora.rnk; did you mean lora.rank?"));
  EXPECT_THAT(Message(Adapting(kQueriesAndValues, {"lora.dropout=1.0"})),
              HasSubstr("lora.dropout"));
}

}  // namespace
}  // namespace lockstep
