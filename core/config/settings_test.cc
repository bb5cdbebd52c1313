#include "core/config/settings.h"

#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "absl/strings/str_cat.h"
#include "core/config/cut_settings.h"
#include "core/kernels/optimizers/registry.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace lockstep {
namespace {

using ::testing::AllOf;
using ::testing::AnyOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

Config MakeConfig(const std::string& tables) {
  const auto config = Config::FromString(
      "[train]\nsteps = 1\n[optimizer]\nkind = \"sgd\"\n[schedule]\nlearning_rate = 0.1\n" + tables,
      "a.toml");
  EXPECT_TRUE(config.ok()) << config.status();
  return *config;
}

absl::StatusOr<Settings> Read(int64_t size, const std::string& cut, const std::string& rest = "") {
  return ReadSettings(MakeConfig(absl::StrCat(rest, "[batch]\nsize = ", size, "\n[cut]\n", cut)));
}

std::vector<int64_t> MicroBatches(int64_t size, const std::string& cut) {
  const auto settings = Read(size, cut);
  EXPECT_TRUE(settings.ok()) << settings.status();
  std::vector<int64_t> samples;
  for (int64_t i = 0; i < settings->cut.shards * settings->cut.micro_batches; ++i) {
    samples.push_back(settings->samples_of(i));
  }
  EXPECT_EQ(settings->largest_micro_batch(), samples.front());
  EXPECT_EQ(settings->smallest_micro_batch(), samples.back());
  EXPECT_EQ(settings->validation.batch_size, samples.front());
  return samples;
}

TEST(BatchSettingsTest, MicroBatchesDifferByOneSampleAtMost) {
  EXPECT_THAT(MicroBatches(12, "shards = 2\nmicro_batches = 3"), ElementsAre(2, 2, 2, 2, 2, 2));
  EXPECT_THAT(MicroBatches(10, "shards = 2\nmicro_batches = 3"), ElementsAre(2, 2, 1, 2, 2, 1));
  EXPECT_THAT(MicroBatches(11, "micro_batches = 4"), ElementsAre(3, 3, 3, 2));
}

TEST(BatchSettingsTest, NoMicroBatchIsEmpty) {
  EXPECT_THAT(MicroBatches(6, "shards = 2\nmicro_batches = 8"), ElementsAre(1, 1, 1, 1, 1, 1));
  EXPECT_THAT(MicroBatches(1, "micro_batches = 8"), ElementsAre(1));
}

TEST(BatchSettingsTest, ShardsHaveOneSize) {
  EXPECT_THAT(std::string(Read(10, "shards = 3").status().message()),
              HasSubstr("batch.size is 10 samples, which do not divide into 3 shards; use a "
                        "multiple of 3"));
  EXPECT_FALSE(Read(2, "shards = 3").ok());
}

absl::StatusOr<Settings> ReadOnMesh(const std::string& tables) {
  return ReadSettings(MakeConfig("[batch]\nsize = 24\n" + tables));
}

// Why ranks cannot have this mesh and cut.
std::string Problem(const std::string& tables,
                    ShardAssignment assignment = ShardAssignment::kConsecutive) {
  const Settings settings = ReadOnMesh(tables).value();
  return std::string(CheckShards(settings.mesh, settings.cut, assignment).message());
}

// cuDNN's bits are those of a call's heads and tokens, which such a cut lets ranks divide.
TEST(PrecisionSettingsTest, CudnnAttentionIsForCutsThatLeaveHeadsAndTokensWhole) {
  const auto attention = [](const std::string& tables) {
    return ReadOnMesh(tables).value().attention();
  };
  EXPECT_EQ(attention(""), AttentionKernels::kCudnn);
  EXPECT_EQ(attention("[precision]\ncudnn_attention = false\n"), AttentionKernels::kOwn);
  EXPECT_EQ(attention("[cut]\nshards = 4\nmicro_batches = 2\n"), AttentionKernels::kCudnn);
  EXPECT_EQ(attention("[cut]\nfeatures = 2\n"), AttentionKernels::kOwn);
  EXPECT_EQ(attention("[mesh]\ntp = 2\n"), AttentionKernels::kOwn);
  EXPECT_EQ(attention("[cut]\ntokens = 2\n"), AttentionKernels::kOwn);
}

TEST(CutSettingsTest, ProductsHaveOneShapeWhereNothingInThemIsDivided) {
  const auto shapes = [](const std::string& tables, int64_t experts = 0) {
    return ReadOnMesh(tables).value().product_shapes(experts);
  };
  EXPECT_EQ(shapes(""), ProductShapes::kSame);
  EXPECT_EQ(shapes("[cut]\nshards = 4\nmicro_batches = 2\n"), ProductShapes::kSame);
  EXPECT_EQ(shapes("", 4), ProductShapes::kDivided);
  EXPECT_EQ(shapes("[cut]\ntokens = 2\n"), ProductShapes::kDivided);
  EXPECT_EQ(shapes("[cut]\nfeatures = 2\n"), ProductShapes::kDivided);
  EXPECT_EQ(shapes("[mesh]\ntp = 2\n"), ProductShapes::kDivided);
}

TEST(CutSettingsTest, OnlyWithoutShardsTheMeshSaysHowMany) {
  const Settings of_mesh = ReadOnMesh("[mesh]\ndp = 3\n").value();
  EXPECT_EQ(of_mesh.cut.shards, 3);
  EXPECT_TRUE(of_mesh.cut.shards_are_of_mesh);
  const Settings given = ReadOnMesh("[mesh]\ndp = 3\n[cut]\nshards = 3\n").value();
  EXPECT_EQ(given.cut.shards, 3);
  EXPECT_FALSE(given.cut.shards_are_of_mesh);
  const Settings single = Read(24, "micro_batches = 2").value();
  EXPECT_EQ(single.cut.shards, 1);
  EXPECT_FALSE(single.cut.shards_are_of_mesh);
}

TEST(CutSettingsTest, OnlyWithoutFeaturesTheMeshSaysHowMany) {
  const Settings of_mesh = ReadOnMesh("[mesh]\ntp = 3\n").value();
  EXPECT_EQ(of_mesh.cut.features, 3);
  EXPECT_TRUE(of_mesh.cut.features_are_of_mesh);
  const Settings given = ReadOnMesh("[mesh]\ntp = 3\n[cut]\nfeatures = 3\n").value();
  EXPECT_EQ(given.cut.features, 3);
  EXPECT_FALSE(given.cut.features_are_of_mesh);
  const Settings single = ReadOnMesh("").value();
  EXPECT_EQ(single.cut.features, 1);
  EXPECT_FALSE(single.cut.features_are_of_mesh);
}

// A rank holds a node of the tree over features: two of six leaves are one, three of them are not.
TEST(CutSettingsTest, RanksAlongTpHoldAPowerOfTwoOfTheFeatureLeaves) {
  const auto read = [](int tp, int features) {
    return ReadOnMesh(absl::StrCat("[mesh]\ntp = ", tp, "\n[cut]\nfeatures = ", features, "\n"));
  };
  for (const auto& [tp, features] :
       {std::pair(1, 6), std::pair(3, 6), std::pair(6, 6), std::pair(2, 8), std::pair(1, 1)}) {
    EXPECT_EQ(read(tp, features).value().cut.features, features);
  }
  EXPECT_THAT(
      std::string(read(2, 6).status().message()),
      HasSubstr("is 6, but mesh.tp is 2: each rank along tp must hold a power of two of the "
                "feature leaves, so that it sums a node of the tree over features; set "
                "mesh.tp=1, 3 or 6, or cut.features=2"));
  EXPECT_THAT(std::string(read(4, 2).status().message()), HasSubstr("set mesh.tp=1 or 2"));
  EXPECT_THAT(std::string(read(2, 1).status().message()), HasSubstr("set mesh.tp=1, or cut."));
  EXPECT_FALSE(read(1, 0).ok());
}

TEST(ShardAssignmentTest, AMeshThatDoesNotFitIsRefusedWithThoseThatDo) {
  EXPECT_EQ(
      Problem("[mesh]\ndp = 4\n[cut]\nshards = 2\n"),
      "cut.shards is 2, but mesh.dp is 4: these ranks do not divide the shards evenly; set one "
      "of mesh.dp=1, 2; mesh.replicas=2 with mesh.dp=1");
  EXPECT_THAT(Problem("[mesh]\ndp = 3\n[cut]\nshards = 8\n"),
              HasSubstr("set one of mesh.dp=1, 2, 4, 8; mesh.replicas=2 with mesh.dp=1, 2, 4; "
                        "mesh.replicas=4 with mesh.dp=1, 2; mesh.replicas=8 with mesh.dp=1"));
  EXPECT_THAT(Problem("[mesh]\nreplicas = 2\ndp = 2\n[cut]\nshards = 6\n"),
              HasSubstr("mesh.replicas x mesh.dp is 2 x 2: these ranks do not divide"));
}

// Three ranks of a replica would sum (0 + 1) + 2, where the tree over six shards has (0 + 1) + (2 +
// 3) first; and so would a rank with three shards, or a round of three ranks.
TEST(ShardAssignmentTest, WhateverIsSummedFirstIsANode) {
  for (const char* cut : {"", "[cut]\nshards = 6\n"}) {
    EXPECT_THAT(Problem(absl::StrCat("[mesh]\nreplicas = 2\ndp = 3\n", cut)),
                HasSubstr("a replica would sum 3 shards, and only a power of two is a node"));
  }
  const std::string two = "[mesh]\ndp = 2\n[cut]\nshards = 6\n",
                    three = "[mesh]\ndp = 3\n[cut]\nshards = 6\n";
  EXPECT_THAT(Problem(two), HasSubstr("a rank would sum 3 shards"));
  EXPECT_EQ(Problem(two, ShardAssignment::kStrided), "");
  EXPECT_THAT(Problem(three, ShardAssignment::kStrided), HasSubstr("a round would sum 3 shards"));
  EXPECT_EQ(Problem(three), "");
  for (const auto assignment : {ShardAssignment::kConsecutive, ShardAssignment::kStrided}) {
    EXPECT_EQ(Problem("[mesh]\nreplicas = 3\ndp = 2\n", assignment), "");
    EXPECT_EQ(Problem("[mesh]\nreplicas = 3\ndp = 2\n[cut]\nshards = 12\n", assignment), "");
    EXPECT_EQ(Problem("[mesh]\ndp = 3\n", assignment), "");
    EXPECT_EQ(Problem("[cut]\nshards = 3\n", assignment), "");
  }
}

TEST(ShardAssignmentTest, RanksHaveRunsOrStridesOfTheirReplicasShards) {
  const MeshShape mesh = {.replicas = 2, .dp = 2};
  const CutSettings cut = {.shards = 8};
  const auto of = [&](int replica, int dp, ShardAssignment assignment) {
    return ShardsOfRank(mesh, {.replicas = replica, .dp = dp}, cut, assignment);
  };
  EXPECT_THAT(of(0, 1, ShardAssignment::kConsecutive), ElementsAre(2, 3));
  EXPECT_THAT(of(1, 0, ShardAssignment::kConsecutive), ElementsAre(4, 5));
  EXPECT_THAT(of(0, 1, ShardAssignment::kStrided), ElementsAre(1, 3));
  EXPECT_THAT(of(1, 0, ShardAssignment::kStrided), ElementsAre(4, 6));
}

// As a later layer of a configuration may say.
TEST(LoraSettingsTest, FalseTakesTheTableBack) {
  Config config =
      Config::FromString("[lora]\nlayers = [\"*\"]\nlearning_rate = 0.5\n", "a").value();
  Settings settings;
  ASSERT_TRUE(ReadLora(config, settings).ok());
  EXPECT_TRUE(settings.lora.has_value());
  ASSERT_TRUE(config.Set("lora=false").ok());
  Settings without;
  ASSERT_TRUE(ReadLora(config, without).ok());
  EXPECT_FALSE(without.lora.has_value());
  EXPECT_NE(without.schedule.peak, 0.5);
  ASSERT_TRUE(config.Set("lora=true").ok());
  EXPECT_THAT(std::string(ReadLora(config, without).message()),
              HasSubstr("lora is true, expected a table"));
}

TEST(BatchSettingsTest, ValidationMayHaveItsOwn) {
  EXPECT_EQ(Read(10, "micro_batches = 4", "[validation]\nbatch_size = 7\n")->validation.batch_size,
            7);
}

TEST(RunSettingsTest, InstructionsAreTheWidestOrThoseOfEveryProcessor) {
  EXPECT_EQ(Read(1, "")->instructions, WidestInstructionSet());
  EXPECT_EQ(Read(1, "", "[run]\ninstructions = \"widest\"\n")->instructions,
            WidestInstructionSet());
  EXPECT_EQ(Read(1, "", "[run]\ninstructions = \"avx2\"\n")->instructions, InstructionSet::kAvx2);
  EXPECT_THAT(Read(1, "", "[run]\ninstructions = \"sse\"\n").status().message(),
              HasSubstr("run.instructions"));
}

TEST(RunSettingsTest, OfWrongLegsTheFirstIsTold) {
  Config config = MakeConfig("[batch]\nsize = 4\n");
  ASSERT_TRUE(config.Set("train.legs=[\"2: single\", \"one\", \"two\", \"three\"]").ok());
  const std::string message(ReadSettings(config).status().message());
  EXPECT_THAT(message, HasSubstr("train.legs 'one' does not begin with its number of steps"));
  EXPECT_THAT(message, Not(HasSubstr("two")));
}

TEST(RunSettingsTest, StepsAreRepeatedOnAnotherRankWhereThereIsOne) {
  const auto read = [](const std::string& mesh, const std::string& guard) {
    return ReadSettings(
        MakeConfig(absl::StrCat("[batch]\nsize = 24\n[mesh]\n", mesh, "[guard]\n", guard)));
  };
  const std::string elsewhere = "every = 2\nrepeat_on = \"other_rank\"\n";
  EXPECT_EQ(read("dp = 2\n", elsewhere)->guard.repeat_on, RepeatOn::kOtherRank);
  EXPECT_EQ(read("dp = 2\n", "every = 2\n")->guard.repeat_on, RepeatOn::kSameRank);
  EXPECT_THAT(std::string(read("dp = 1\n", elsewhere).status().message()),
              HasSubstr("guard.repeat_on is \"other_rank\", but the mesh has one rank"));
  EXPECT_TRUE(read("dp = 1\n", "repeat_on = \"other_rank\"\n").ok());
}

TEST(ScheduleSettingsTest, AScheduleThatDecaysAtItsEnd) {
  const std::string wsd =
      "schedule = {kind = \"wsd\", learning_rate = 0.1, total_steps = 100, warmup_steps = 60";
  const auto read = [&](const std::string& rest) {
    return ReadSettings(
        Config::FromString(absl::StrCat(wsd, rest,
                                        "}\n[train]\nsteps = 1\n[batch]\nsize = 1\n[optimizer]\n"
                                        "kind = \"sgd\"\n"),
                           "a.toml")
            .value());
  };
  EXPECT_EQ(read("")->schedule.decay_steps, 10);
  EXPECT_EQ(read(", decay_steps = 40, floor = 0.01")->schedule.decay_steps, 40);
  EXPECT_THAT(std::string(read(", decay_steps = 41").status().message()),
              HasSubstr("schedule.decay_steps is 41: with 60 steps of warm-up that is more than "
                        "the 100 of the schedule"));
  EXPECT_THAT(std::string(read(", kind2 = 1").status().message()),
              HasSubstr("unknown key schedule.kind2; did you mean schedule.kind?"));
}

// Settings with this table [optimizer].
absl::StatusOr<Settings> ReadOptimizer(const std::string& optimizer, const std::string& keys) {
  const Config config =
      Config::FromString(absl::StrCat("[train]\nsteps = 1\n[batch]\nsize = 1\n[schedule]\n"
                                      "learning_rate = 0.1\n[optimizer]\nkind = \"",
                                      optimizer, "\"\n", keys),
                         "a.toml")
          .value();
  return ReadSettings(config);
}

TEST(OptimizerSettingsTest, EveryOptimizerHasItsName) {
  for (const OptimizerRule& optimizer : AllOptimizers()) {
    const auto settings = ReadOptimizer(Name(optimizer), "weight_decay = 0.5");
    ASSERT_TRUE(settings.ok()) << settings.status();
    EXPECT_EQ(Name(settings->optimizer.rule), Name(optimizer));
    EXPECT_EQ(settings->optimizer.weight_decay, 0.5);
  }
}

TEST(OptimizerSettingsTest, OptionsAreThoseOfTheOptimizer) {
  const auto adamw = ReadOptimizer("adamw", "beta1 = 0.5\nbeta2 = 0.25\nepsilon = 2.0");
  ASSERT_TRUE(adamw.ok()) << adamw.status();
  EXPECT_EQ(std::get<AdamW>(adamw->optimizer.rule).beta1, 0.5f);
  EXPECT_EQ(std::get<AdamW>(adamw->optimizer.rule).beta2, 0.25f);
  EXPECT_EQ(std::get<AdamW>(adamw->optimizer.rule).epsilon, 2);
  const auto sgd = ReadOptimizer("sgd", "momentum = 0.5\nnesterov = true");
  ASSERT_TRUE(sgd.ok()) << sgd.status();
  EXPECT_EQ(std::get<Sgd>(sgd->optimizer.rule).momentum, 0.5f);
  EXPECT_TRUE(std::get<Sgd>(sgd->optimizer.rule).nesterov);
  EXPECT_THAT(std::string(ReadOptimizer("sgd", "beta1 = 0.5").status().message()),
              HasSubstr("unknown key optimizer.beta1"));
  EXPECT_THAT(std::string(ReadOptimizer("sgd", "nesterov = true").status().message()),
              HasSubstr("optimizer.nesterov needs a momentum above 0"));
}

// An optimizer that has the key says its range.
TEST(OptimizerSettingsTest, BadOptionsAreRefused) {
  for (const OptimizerRule& optimizer : AllOptimizers()) {
    const auto problem = [&](const std::string& keys) {
      return std::string(ReadOptimizer(Name(optimizer), keys).status().message());
    };
    EXPECT_THAT(problem("weight_decay = -0.5"),
                HasSubstr("optimizer.weight_decay is -0.5: it must be at least 0"));
    for (const std::string key : {"beta1", "beta2", "momentum"}) {
      for (const std::string value : {"1.0", "-0.5"}) {
        EXPECT_THAT(problem(absl::StrCat(key, " = ", value)),
                    AnyOf(HasSubstr(absl::StrCat("unknown key optimizer.", key)),
                          HasSubstr(absl::StrCat("optimizer.", key, " is ", value,
                                                 ": it must be at least 0 and less than 1"))))
            << Name(optimizer);
      }
    }
  }
  const std::string unknown(ReadOptimizer("adafactor", "").status().message());
  for (const OptimizerRule& optimizer : AllOptimizers()) {
    EXPECT_THAT(unknown, HasSubstr(absl::StrCat("\"", Name(optimizer), "\"")));
  }
}

}  // namespace
}  // namespace lockstep
