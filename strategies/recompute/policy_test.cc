#include "strategies/recompute/policy.h"

#include <functional>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "models/resnet/resnet.h"
#include "models/toy/toy.h"
#include "models/transformer/transformer.h"
#include "models/unet/unet.h"

namespace lockstep {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

absl::StatusOr<RecomputePolicy> Read(const std::string& table) {
  const auto config = Config::FromString("[recompute]\n" + table, "a.toml");
  EXPECT_TRUE(config.ok()) << config.status();
  return ReadRecomputePolicy(*config);
}

std::string Problem(const std::string& table) {
  return std::string(Read(table).status().message());
}

std::string Problem(const std::string& table, Model model) {
  return std::string(ApplyRecomputePolicy(*Read(table), model).message());
}

// The blocks of a model that a table recomputes.
std::vector<std::string> Recomputed(const std::string& table, Model model) {
  const RecomputePolicy policy = *Read(table);
  EXPECT_EQ(ApplyRecomputePolicy(policy, model), absl::OkStatus());
  std::vector<std::string> names;
  for (const auto& block : model.blocks) {
    if (block->recomputed.whole) names.push_back(block->name());
    EXPECT_EQ(block->recomputed.operations, policy.operations);
  }
  return names;
}

TEST(ReadRecomputePolicyTest, KeepsEverythingByDefault) {
  const auto policy = Read("");
  ASSERT_TRUE(policy.ok()) << policy.status();
  EXPECT_EQ(policy->micro_batches, Checkpointing::kNever);
  EXPECT_THAT(policy->blocks, IsEmpty());
  EXPECT_THAT(policy->operations, IsEmpty());
}

TEST(ReadRecomputePolicyTest, MicroBatchesAreOneOfThree) {
  const auto read = [](const char* mode) {
    return Read("micro_batches = \"" + std::string(mode) + "\"")->micro_batches;
  };
  EXPECT_EQ(read("always"), Checkpointing::kAlways);
  EXPECT_EQ(read("except_last"), Checkpointing::kExceptLast);
  EXPECT_EQ(read("never"), Checkpointing::kNever);
  EXPECT_THAT(Problem("micro_batches = \"sometimes\""), HasSubstr("recompute.micro_batches"));
}

TEST(ReadRecomputePolicyTest, GranularitySpeaksAsMegatronDoes) {
  EXPECT_THAT(Read("granularity = \"full\"")->blocks, ElementsAre("*"));
  EXPECT_THAT(Read("granularity = \"full\"")->operations, IsEmpty());
  EXPECT_THAT(Read("granularity = \"selective\"")->operations, ElementsAre("attention"));
  EXPECT_THAT(Read("granularity = \"selective\"")->blocks, IsEmpty());
  EXPECT_THAT(Problem("granularity = \"partial\""), HasSubstr("recompute.granularity"));
}

TEST(ReadRecomputePolicyTest, GranularityIsInPlaceOfBlocksAndOperations) {
  for (const char* other : {"blocks = [\"a\"]", "operations = [\"mlp\"]"}) {
    for (const char* granularity : {"full", "selective"}) {
      EXPECT_THAT(Problem("granularity = \"" + std::string(granularity) + "\"\n" + other),
                  HasSubstr("recompute.granularity says which blocks and operations"));
    }
    EXPECT_EQ(Problem("granularity = \"none\"\n" + std::string(other)), "");
  }
}

TEST(RecomputePolicyTest, PatternsNameBlocks) {
  const auto gpt = [] { return MakeTransformer({.layers = 3}); };
  EXPECT_THAT(Recomputed("", gpt()), IsEmpty());
  EXPECT_THAT(Recomputed("granularity = \"selective\"", gpt()), IsEmpty());
  EXPECT_THAT(Recomputed("granularity = \"full\"", gpt()),
              ElementsAre("embedding", "blocks.0", "blocks.1", "blocks.2", "head"));
  EXPECT_THAT(Recomputed("blocks = [\"blocks\"]", gpt()),
              ElementsAre("blocks.0", "blocks.1", "blocks.2"));
  EXPECT_THAT(Recomputed("blocks = [\"*.1\", \"head\"]\noperations = [\"mlp\"]", gpt()),
              ElementsAre("blocks.1", "head"));
}

TEST(RecomputePolicyTest, APatternThatMatchesNothingIsRefusedWithTheNamesNearToIt) {
  EXPECT_EQ(
      Problem("blocks = [\"blocks.*\", \"block.1\", \"tail\"]", MakeTransformer({.layers = 2})),
      "recompute.blocks: no block matches 'block.1'; there are blocks.1, blocks.0, head, "
      "embedding\n"
      "recompute.blocks: no block matches 'tail'; there are head, embedding, blocks.0, "
      "blocks.1");
}

TEST(RecomputePolicyTest, AnOperationThatTheModelLacksIsRefusedWithThoseThatItHas) {
  EXPECT_EQ(Problem("operations = [\"mlp\", \"mpl\"]", MakeTransformer({})),
            "recompute.operations: this model has no operation 'mpl'; it has attention, mlp");
  const std::function<Model()> makers[] = {[] { return MakeResNet({}); },
                                           [] { return MakeUNet({}); }};
  for (const auto& make_model : makers) {
    EXPECT_EQ(Problem("operations = [\"convolution\"]", make_model()), "");
    EXPECT_EQ(Problem("granularity = \"selective\"", make_model()),
              "recompute.operations (granularity = \"selective\" is [\"attention\"]): this model "
              "has no operation 'attention'; it has convolution");
  }
  EXPECT_EQ(Problem("operations = [\"mlp\"]", MakeToy({})),
            "recompute.operations: this model has no operation 'mlp'; it has none, so use "
            "recompute.blocks");
  EXPECT_EQ(Problem("granularity = \"full\"", MakeToy({})), "");
}

}  // namespace
}  // namespace lockstep
