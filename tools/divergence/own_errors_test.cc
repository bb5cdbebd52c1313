// Runs of Lockstep recomputed operation by operation, and values of a recorded run put wrong.

#include "tools/divergence/own_errors.h"

#include <optional>
#include <string>
#include <utility>
#include <variant>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "models/models.h"
#include "strategies/single/single.h"
#include "strategies/testing/run_strategy.h"
#include "tools/divergence/semantics.h"

namespace lockstep {
namespace {

using ::testing::HasSubstr;

const Assignments kWorkload = {"train.steps=2", "probe.steps=2", "probe.values=true",
                               "cut.micro_batches=2"};

struct Recorded {
  ProbedRun run;
  Config config;
};

Recorded Record(const std::string& model, const Assignments& workload) {
  RunStrategy(SingleStrategy(), MakeModel, model, With(kWorkload, workload));
  absl::StatusOr<ProbedRun> run = ReadProbedRun(RunFolder());
  EXPECT_TRUE(run.ok()) << run.status();
  absl::StatusOr<Config> config = Config::FromFile(RunFolder() + "/config.toml");
  EXPECT_TRUE(config.ok()) << config.status();
  return {*std::move(run), *std::move(config)};
}

Recorded RecordGpt(const Assignments& workload) {
  return Record(SmallGptConfig(), With({"model.dropout=0"}, workload));
}

Recorded RecordResNet(const Assignments& workload) {
  return Record(SmallResNetConfig(), With({"model.width=4", "batch.size=6"}, workload));
}

template <typename Semantics>
Semantics SemanticsOf(const Recorded& recorded) {
  absl::StatusOr<ModelSemantics> semantics = ReadModelSemantics(recorded.config);
  EXPECT_TRUE(semantics.ok()) << semantics.status();
  return std::get<Semantics>(*std::move(semantics));
}

OwnErrors Judge(const ProbedRun& run, const ModelSemantics& semantics) {
  absl::StatusOr<OwnErrors> errors = JudgeOwnErrors(run, semantics);
  EXPECT_TRUE(errors.ok()) << errors.status();
  return *std::move(errors);
}

void ExpectNoErrors(const OwnErrors& errors, int64_t at_least) {
  EXPECT_GT(errors.judged, at_least);
  for (const OwnError& each : errors.errors) {
    ADD_FAILURE() << each.tensor->key.ToString() << ": " << each.units << " units";
  }
}

TEST(OwnErrorsTest, AGptIsWhatItsInputsGive) {
  for (const char* tokens : {"cut.tokens=1", "cut.tokens=2"}) {
    const Recorded recorded = RecordGpt({tokens});
    ExpectNoErrors(Judge(recorded.run, SemanticsOf<DecoderSemantics>(recorded)), 60);
  }
}

// The model computes with another number of heads than it is held to: attention is wrong, and
// nothing before it, in both blocks and both directions.
TEST(OwnErrorsTest, AWrongOperationIsNamedAndItsFollowersAreNot) {
  const Recorded recorded = RecordGpt({});
  DecoderSemantics semantics = SemanticsOf<DecoderSemantics>(recorded);
  semantics.heads = semantics.key_heads = 1;
  const OwnErrors errors = Judge(recorded.run, semantics);
  ASSERT_FALSE(errors.errors.empty());
  for (const OwnError& each : errors.errors) {
    const ProbeKey& key = each.tensor->key;
    EXPECT_EQ(key.kind == ProbeKind::kForward, key.place.ends_with("attention.core"));
    EXPECT_EQ(key.kind == ProbeKind::kBackward, key.place.ends_with("attention.qkv"));
  }
}

TEST(OwnErrorsTest, AnEpsilonTenTimesTooLargeIsFound) {
  const Recorded recorded = RecordGpt({});
  DecoderSemantics semantics = SemanticsOf<DecoderSemantics>(recorded);
  semantics.norm_epsilon *= 10;
  const OwnErrors errors = Judge(recorded.run, semantics);
  ASSERT_FALSE(errors.errors.empty());
  EXPECT_THAT(errors.errors.front().tensor->key.ToString(),
              HasSubstr("step 1, micro-batch 0, forward of blocks.0.attention.norm"));
}

// What was not recorded is not judged.
TEST(OwnErrorsTest, SomePlacesAloneAreJudgedAsFarAsTheyGo) {
  const Recorded recorded =
      RecordGpt({R"(probe.places=["blocks.1", "blocks.0.network.down"])", "train.steps=1"});
  const OwnErrors errors = Judge(recorded.run, SemanticsOf<DecoderSemantics>(recorded));
  EXPECT_GE(errors.judged, 8);
  EXPECT_TRUE(errors.errors.empty());
}

// Convolutions, normalisations and the head in both directions, gradients, and running statistics:
// 20 units, or 53 of which four are shortcuts.
TEST(OwnErrorsTest, AResNetIsWhatItsInputsGive) {
  for (const char* stem : {"cifar", "imagenet"}) {
    const Recorded recorded = RecordResNet({absl::StrCat("model.stem=", stem)});
    ExpectNoErrors(Judge(recorded.run, SemanticsOf<ResNetSemantics>(recorded)), 300);
  }
  const Recorded recorded =
      RecordResNet({"model.depth=50", "model.width=2", "model.stem=imagenet", "train.steps=1"});
  ExpectNoErrors(Judge(recorded.run, SemanticsOf<ResNetSemantics>(recorded)), 400);
}

// The model normalises by another epsilon than it is held to: all normalisations are wrong, and no
// convolution.
TEST(OwnErrorsTest, AWrongNormalisationIsNamedAndTheConvolutionBehindItIsNot) {
  const Recorded recorded = RecordResNet({"train.steps=1"});
  ResNetSemantics semantics = SemanticsOf<ResNetSemantics>(recorded);
  semantics.norm_epsilon = 1e-3;
  const OwnErrors errors = Judge(recorded.run, semantics);
  ASSERT_FALSE(errors.errors.empty());
  EXPECT_EQ(errors.errors.front().tensor->key.ToString(),
            "step 1, micro-batch 0, forward of stem.unit.norm");
  for (const OwnError& each : errors.errors) {
    const ProbeKey& key = each.tensor->key;
    const bool is_right = key.kind == ProbeKind::kForward    ? key.place.ends_with("norm")
                          : key.kind == ProbeKind::kBackward ? key.place.ends_with("conv")
                                                             : key.place.ends_with("norm.weight");
    EXPECT_TRUE(is_right) << key.ToString();
  }
}

TEST(OwnErrorsTest, AnEstimateThatMovesOtherwiseIsFound) {
  const Recorded recorded = RecordResNet({"train.steps=1"});
  ResNetSemantics semantics = SemanticsOf<ResNetSemantics>(recorded);
  semantics.estimate = ResNetSemantics::Estimate::kOfEachMicroBatch;
  const OwnErrors errors = Judge(recorded.run, semantics);
  EXPECT_EQ(errors.errors.size(), 40u);  // mean and variance of 20 normalisations
  for (const OwnError& each : errors.errors) {
    EXPECT_THAT(each.tensor->key.place, HasSubstr("running_"));
  }
}

TEST(OwnErrorsTest, SomePlacesOfAResNetAreJudgedAsFarAsTheyGo) {
  const Recorded recorded = RecordResNet({R"(probe.places=["layer2.0"])", "train.steps=1"});
  ExpectNoErrors(Judge(recorded.run, SemanticsOf<ResNetSemantics>(recorded)), 0);
}

TEST(OwnErrorsTest, TheUpdateOfSgdIsWhatGradientsAndMomentumGive) {
  for (const char* nesterov : {"optimizer.nesterov=false", "optimizer.nesterov=true"}) {
    const Recorded recorded = RecordResNet({nesterov});
    std::optional<OptimizerSemantics> optimizer = ReadOptimizerSemantics(recorded.config).value();
    ASSERT_TRUE(optimizer.has_value());
    SgdSemantics& sgd = std::get<SgdSemantics>(optimizer->rule);
    sgd.momentum = static_cast<float>(sgd.momentum);
    const ResNetSemantics semantics = SemanticsOf<ResNetSemantics>(recorded);
    const auto judge = [&] { return *JudgeOwnErrors(recorded.run, semantics, optimizer); };
    ExpectNoErrors(judge(), Judge(recorded.run, semantics).judged + 200);
    sgd.nesterov = !sgd.nesterov;
    EXPECT_EQ(judge().errors.front().tensor->key.ToString(),
              "step 1, state after of stem.unit.conv.weight");
    sgd.nesterov = !sgd.nesterov;
    optimizer->weight_decay *= 2;
    EXPECT_EQ(judge().errors.front().tensor->key.ToString(),
              "step 1, state after of optimizer.momentum.stem.unit.conv.weight");
  }
}

// Lockstep computes with the floats next to the numbers of the configuration.
TEST(OwnErrorsTest, TheUpdateOfAdamWIsWhatGradientsAndMomentsGive) {
  const Recorded recorded = RecordGpt({});
  std::optional<OptimizerSemantics> optimizer = ReadOptimizerSemantics(recorded.config).value();
  ASSERT_TRUE(optimizer.has_value());
  AdamWSemantics& adamw = std::get<AdamWSemantics>(optimizer->rule);
  adamw.beta1 = static_cast<float>(adamw.beta1);
  adamw.beta2 = static_cast<float>(adamw.beta2);
  const DecoderSemantics semantics = SemanticsOf<DecoderSemantics>(recorded);
  const auto judge = [&] { return *JudgeOwnErrors(recorded.run, semantics, optimizer); };
  ExpectNoErrors(judge(), Judge(recorded.run, semantics).judged + 100);
  optimizer->clip_norm = 0.01;
  EXPECT_THAT(judge().errors.front().tensor->key.ToString(),
              HasSubstr("step 1, state after of optimizer.first_moment.embedding.token.weight"));
}

TEST(ReadModelSemanticsTest, RefusesWhatIsNotRecomputed) {
  for (const char* config : {"[model]\nkind = \"unet\"", "[model]\nkind = \"llama\"\ndropout = 0.1",
                             "[model]\nkind = \"resnet\"\n[lora]\nrank = 2"}) {
    const absl::StatusOr<Config> read = Config::FromString(config, "test");
    ASSERT_TRUE(read.ok());
    EXPECT_THAT(ReadModelSemantics(*read).status().message(), HasSubstr("set these off"));
  }
}

}  // namespace
}  // namespace lockstep
