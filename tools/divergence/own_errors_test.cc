// Runs of Lockstep recomputed operation by operation, and values of a recorded run put wrong.

#include "tools/divergence/own_errors.h"

#include <optional>
#include <string>
#include <utility>

#include "core/nn/positions.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "models/models.h"
#include "strategies/single/single.h"
#include "strategies/testing/run_strategy.h"
#include "tools/divergence/foreign.h"

namespace lockstep {
namespace {

using ::testing::HasSubstr;

const Assignments kWorkload = {"train.steps=2", "probe.steps=2", "probe.values=true",
                               "model.dropout=0", "cut.micro_batches=2"};

struct Recorded {
  ProbedRun run;
  Config config;
};

Recorded Record(const Assignments& workload) {
  RunStrategy(SingleStrategy(), MakeModel, SmallGptConfig(), With(kWorkload, workload));
  absl::StatusOr<ProbedRun> run = ReadProbedRun(RunFolder());
  EXPECT_TRUE(run.ok()) << run.status();
  absl::StatusOr<Config> config = Config::FromFile(RunFolder() + "/config.toml");
  EXPECT_TRUE(config.ok()) << config.status();
  return {*std::move(run), *std::move(config)};
}

DecoderSemantics SemanticsOf(const Recorded& recorded) {
  absl::StatusOr<DecoderSemantics> semantics = ReadDecoderSemantics(recorded.config);
  EXPECT_TRUE(semantics.ok()) << semantics.status();
  return *std::move(semantics);
}

OwnErrors Judge(const ProbedRun& run, const DecoderSemantics& semantics) {
  absl::StatusOr<OwnErrors> errors = JudgeOwnErrors(run, semantics);
  EXPECT_TRUE(errors.ok()) << errors.status();
  return *std::move(errors);
}

TEST(OwnErrorsTest, AGptIsWhatItsInputsGive) {
  for (const char* tokens : {"cut.tokens=1", "cut.tokens=2"}) {
    const Recorded recorded = Record({tokens});
    const OwnErrors errors = Judge(recorded.run, SemanticsOf(recorded));
    EXPECT_GT(errors.judged, 60);
    for (const OwnError& each : errors.errors) {
      ADD_FAILURE() << each.tensor->key.ToString() << ": " << each.units << " units";
    }
  }
}

// The model computes with another number of heads than it is held to: attention is wrong, and
// nothing before it, in both blocks and both directions.
TEST(OwnErrorsTest, AWrongOperationIsNamedAndItsFollowersAreNot) {
  const Recorded recorded = Record({});
  DecoderSemantics semantics = SemanticsOf(recorded);
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
  const Recorded recorded = Record({});
  DecoderSemantics semantics = SemanticsOf(recorded);
  semantics.norm_epsilon *= 10;
  const OwnErrors errors = Judge(recorded.run, semantics);
  ASSERT_FALSE(errors.errors.empty());
  EXPECT_THAT(errors.errors.front().tensor->key.ToString(),
              HasSubstr("step 1, micro-batch 0, forward of blocks.0.attention.norm"));
}

// What was not recorded is not judged.
TEST(OwnErrorsTest, SomePlacesAloneAreJudgedAsFarAsTheyGo) {
  const Recorded recorded =
      Record({R"(probe.places=["blocks.1", "blocks.0.network.down"])", "train.steps=1"});
  const OwnErrors errors = Judge(recorded.run, SemanticsOf(recorded));
  EXPECT_GE(errors.judged, 8);
  EXPECT_TRUE(errors.errors.empty());
}

// Lockstep computes with the floats next to the numbers of the configuration.
TEST(OwnErrorsTest, TheUpdateOfAdamWIsWhatGradientsAndMomentsGive) {
  const Recorded recorded = Record({});
  std::optional<AdamWSemantics> optimizer = ReadAdamWSemantics(recorded.config).value();
  ASSERT_TRUE(optimizer.has_value());
  optimizer->beta1 = static_cast<float>(optimizer->beta1);
  optimizer->beta2 = static_cast<float>(optimizer->beta2);
  const DecoderSemantics semantics = SemanticsOf(recorded);
  const auto judge = [&] { return *JudgeOwnErrors(recorded.run, semantics, optimizer); };
  const OwnErrors right = judge();
  EXPECT_GT(right.judged, Judge(recorded.run, semantics).judged + 100);
  for (const OwnError& each : right.errors) {
    ADD_FAILURE() << each.tensor->key.ToString() << ": " << each.units << " units";
  }
  optimizer->clip_norm = 0.01;
  EXPECT_THAT(judge().errors.front().tensor->key.ToString(),
              HasSubstr("step 1, state after of optimizer.first_moment.embedding.token.weight"));
}

TEST(ReadDecoderSemanticsTest, RefusesWhatIsNotRecomputed) {
  for (const char* model : {"kind = \"resnet\"", "kind = \"transformer\"\ndropout = 0.1"}) {
    const absl::StatusOr<Config> config =
        Config::FromString(std::string("[model]\n") + model, "test");
    ASSERT_TRUE(config.ok());
    EXPECT_THAT(ReadDecoderSemantics(*config).status().message(), HasSubstr("set these off"));
  }
}

}  // namespace
}  // namespace lockstep
