// A U-Net through pipelines: skips go over stages, from the way down to the way up.

#include <cstdlib>  // std::exit
#include <map>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "core/base/file.h"
#include "core/run/main.h"
#include "gtest/gtest.h"
#include "models/models.h"
#include "strategies/fsdp_pipe/fsdp_pipe.h"
#include "strategies/gpipe/gpipe.h"
#include "strategies/layerwise/layerwise.h"
#include "strategies/single/single.h"
#include "strategies/testing/run_strategy.h"

namespace lockstep {
namespace {

// Seven samples a shard, uneven: 3, 2 and 2.
const Assignments kCut = {"cut.micro_batches=3", "train.steps=3", "model.width=4"};
const Assignments kOneShard = {"batch.size=7"}, kTwoShards = {"batch.size=14"};

// One run for all tests of a shard count.
const RankReport& Single(const Assignments& cut) {
  static std::map<std::string, std::vector<RankReport>> runs;
  auto& run = runs[absl::StrJoin(cut, " ")];
  if (run.empty()) {
    run = RunStrategy(SingleStrategy(), MakeModel, SmallUNetConfig(), With(kCut, cut));
  }
  return run[0];
}

void ExpectBitsOfSingle(const StrategyDefinition& strategy, const Assignments& options,
                        const Assignments& of_single) {
  SCOPED_TRACE(absl::StrCat(strategy.name, " ", absl::StrJoin(options, " ")));
  const RankReport& single = Single(of_single);
  ASSERT_FALSE(single.losses.empty());
  for (const RankReport& rank :
       RunStrategy(strategy, MakeModel, SmallUNetConfig(), With(kCut, options))) {
    EXPECT_EQ(rank.losses, single.losses);
    EXPECT_EQ(rank.parameter_hash, single.parameter_hash);
    EXPECT_EQ(rank.validation.loss, single.validation.loss);
    EXPECT_EQ(rank.validation.accuracy, single.validation.accuracy);
    ExpectPredictedTraffic(rank);
  }
}

class SkipsOverStagesTest : public ::testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(Stages, SkipsOverStagesTest, ::testing::Values(2, 3, 4));

TEST_P(SkipsOverStagesTest, HaveTheBitsOfSingle) {
  const std::string stages = absl::StrCat("mesh.pp=", GetParam());
  for (const char* checkpoint : {"always", "except_last", "never"}) {
    const std::string recompute = absl::StrCat("recompute.micro_batches=", checkpoint);
    for (const char* schedule : {"gpipe", "1f1b", "zb_h1"}) {
      ExpectBitsOfSingle(
          GPipeStrategy(),
          With(kOneShard, {stages, recompute, absl::StrCat("pipeline.schedule=", schedule)}),
          kOneShard);
    }
    ExpectBitsOfSingle(FsdpPipeStrategy(),
                       With(kTwoShards, {stages, "mesh.dp=2", "pipeline.schedule=1f1b", recompute}),
                       With(kTwoShards, {"cut.shards=2"}));
  }
  ExpectBitsOfSingle(LayerwiseStrategy(), With(kOneShard, {stages}), kOneShard);
}

// Skips between the legs of a V: some stay on their rank, others cross ranks.
TEST(SkipsOverStagesOfAVTest, HaveTheBitsOfSingle) {
  for (const char* checkpoint : {"always", "never"}) {
    for (const char* stages : {"mesh.pp=2", "mesh.pp=3"}) {
      ExpectBitsOfSingle(GPipeStrategy(),
                         With(kOneShard, {stages, "pipeline.schedule=zb_v",
                                          absl::StrCat("recompute.micro_batches=", checkpoint)}),
                         kOneShard);
      ExpectBitsOfSingle(FsdpPipeStrategy(),
                         With(kTwoShards, {stages, "mesh.dp=2", "pipeline.schedule=zb_v",
                                           absl::StrCat("recompute.micro_batches=", checkpoint)}),
                         With(kTwoShards, {"cut.shards=2"}));
    }
  }
}

TEST(SkipsOverStagesBalanceTest, AnyHasTheBitsOfSingle) {
  // The blocks are down0, down1, bottom, up1, up0, head.
  for (const char* balance : {"[1, 5]", "[2, 4]", "[3, 3]", "[5, 1]"}) {
    ExpectBitsOfSingle(GPipeStrategy(),
                       With(kOneShard, {"mesh.pp=2", absl::StrCat("pipeline.balance=", balance)}),
                       kOneShard);
  }
  ExpectBitsOfSingle(GPipeStrategy(), With(kOneShard, {"mesh.pp=6"}), kOneShard);
}

// A U-Net without the block that pops what the first one stashes.
absl::StatusOr<Model> MakeTornUNet(const Config& config, const Dataset& dataset) {
  absl::StatusOr<Model> model = MakeModel(config, dataset);
  if (model.ok()) std::erase_if(model->blocks, [](const auto& b) { return b->name() == "up0"; });
  return model;
}

// Through the whole program, before it makes anything.
TEST(UnmatchedSkipsTest, ATrainingProgramNamesThemWithARemedy) {
  const std::string config = ::testing::TempDir() + "/torn.toml",
                    out = ::testing::TempDir() + "/torn";
  ASSERT_TRUE(WriteFileAtomically(config, SmallUNetConfig()).ok());
  std::vector<std::string> arguments = {"single", "--config", config, "--out", out, "--dry_run"};
  std::vector<char*> argv;
  for (std::string& argument : arguments) argv.push_back(argument.data());
  EXPECT_EXIT(
      std::exit(TrainMain(static_cast<int>(argv.size()), argv.data(), SingleStrategy(),
                          MakeTornUNet,
                          [](const FinishedRun&) { return TimePrediction{.missing = "a test"}; })),
      ::testing::ExitedWithCode(1),
      "pop it once in a later block.*down0: skip 'level0/detail' is stashed, but never popped");
  EXPECT_FALSE(IsDirectory(out));
}

}  // namespace
}  // namespace lockstep
