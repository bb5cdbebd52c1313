#include "models/transformer/transformer.h"

#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace lockstep {
namespace {

using testing::ElementsAre;

const TransformerOptions kGpt2 = {
    .layers = 12, .heads = 12, .width = 768, .context = 1024, .vocabulary = 50257};

// Building a model allocates nothing: this is as cheap as a small one.
TEST(TransformerTest, HasThePublishedNumberOfParameters) {
  const Model model = MakeTransformer(kGpt2);
  EXPECT_EQ(model.ParameterCount(), 124439808);
  for (const Parameter* parameter : model.Parameters()) {
    EXPECT_FALSE(parameter->value.defined()) << parameter->name;
  }
}

// Multiply-adds by looping over the layers, as shared by model and context: every matrix for every
// token, and queries with keys and probabilities with values for every pair of tokens and each
// head.
int64_t CountMacs(const TransformerOptions& options) {
  int64_t macs = 0;
  const auto linear = [&](int64_t in, int64_t out) { macs += options.context * in * out; };
  const int64_t head_width = options.width / options.heads;
  for (int64_t layer = 0; layer < options.layers; ++layer) {
    linear(options.width, 3 * options.width);
    for (int64_t head = 0; head < options.heads; ++head) {
      for (int product = 0; product < 2; ++product) {
        macs += options.context * options.context * head_width;
      }
    }
    linear(options.width, options.width);
    linear(options.width, 4 * options.width);
    linear(4 * options.width, options.width);
  }
  linear(options.width, options.vocabulary);
  return macs;
}

TEST(TransformerTest, CountsItsWork) {
  const TransformerOptions small = {
      .layers = 6, .heads = 6, .width = 384, .context = 256, .vocabulary = 65};
  for (const TransformerOptions& options : {kGpt2, small, TransformerOptions{}}) {
    EXPECT_EQ(MakeTransformer(options).ForwardMacsPerSample(), CountMacs(options));
  }
}

TEST(TransformerTest, ParametersStandInOrderOfUse) {
  const Model model = MakeTransformer({.layers = 1});
  std::vector<std::string> names;
  for (const Parameter* parameter : model.Parameters()) names.push_back(parameter->name);
  EXPECT_THAT(names, ElementsAre("embedding.token.weight", "embedding.position.weight",
                                 "blocks.0.attention.norm.weight", "blocks.0.attention.norm.bias",
                                 "blocks.0.attention.qkv.weight", "blocks.0.attention.qkv.bias",
                                 "blocks.0.attention.projection.weight",
                                 "blocks.0.attention.projection.bias",
                                 "blocks.0.network.norm.weight", "blocks.0.network.norm.bias",
                                 "blocks.0.network.up.weight", "blocks.0.network.up.bias",
                                 "blocks.0.network.down.weight", "blocks.0.network.down.bias",
                                 "head.norm.weight", "head.norm.bias", "head.logits.weight"));
}

TEST(TransformerTest, TheHeadIsTiedToTheTokenEmbedding) {
  const Model model = MakeTransformer({});
  for (const Parameter* parameter : model.Parameters()) {
    if (parameter->name != "head.logits.weight") {
      EXPECT_EQ(parameter->tied_to, nullptr) << parameter->name;
      continue;
    }
    ASSERT_NE(parameter->tied_to, nullptr);
    EXPECT_EQ(parameter->tied_to->name, "embedding.token.weight");
    EXPECT_EQ(parameter->shape, parameter->tied_to->shape);
  }
}

// As in GPT-2, residual branches end in smaller matrices, so that their sum over the layers keeps
// its variance; biases start at 0, scales at 1.
TEST(TransformerTest, StartsAsGpt2Has) {
  const Model model = MakeTransformer({.layers = 8});
  for (const Parameter* parameter : model.Parameters()) {
    const bool ends_branch = absl::EndsWith(parameter->name, "projection.weight") ||
                             absl::EndsWith(parameter->name, "down.weight");
    if (parameter->shape.rank() == 2) {
      EXPECT_EQ(parameter->init.kind, Init::Kind::kNormal) << parameter->name;
      EXPECT_FLOAT_EQ(parameter->init.value, ends_branch ? 0.02f / 4 : 0.02f) << parameter->name;
    } else {
      EXPECT_EQ(parameter->init.kind, Init::Kind::kConstant) << parameter->name;
      EXPECT_EQ(parameter->init.value, absl::EndsWith(parameter->name, "norm.weight") ? 1 : 0)
          << parameter->name;
    }
  }
}

}  // namespace
}  // namespace lockstep
