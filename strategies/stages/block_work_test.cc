#include "strategies/stages/block_work.h"

#include <string>
#include <vector>

#include "core/nn/lora.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "models/resnet/resnet.h"
#include "models/transformer/transformer.h"
#include "strategies/stages/balance.h"
#include "strategies/stages/plan.h"

namespace lockstep {
namespace {

constexpr double d = 32, t = 16, v = 10, r = 4;  // width, context, vocabulary, rank

Model Gpt(int64_t layers) {
  return MakeTransformer({.layers = layers,
                          .heads = 2,
                          .width = static_cast<int64_t>(d),
                          .context = static_cast<int64_t>(t),
                          .vocabulary = static_cast<int64_t>(v)});
}

Model Adapted(Model model, const std::vector<std::string>& layers) {
  const absl::Status status =
      AddAdapters(model, {.layers = layers, .rank = static_cast<int64_t>(r)});
  EXPECT_TRUE(status.ok()) << status;
  return model;
}

void ExpectWork(const BlockWork& work, double forward, double input, double weight) {
  EXPECT_DOUBLE_EQ(work.forward, forward);
  EXPECT_DOUBLE_EQ(work.input_gradient, input);
  EXPECT_DOUBLE_EQ(work.weight_gradient, weight);
}

TEST(BlockWorkTest, TrainingAllOfItTakesThreeForwards) {
  const Model model = Gpt(2);
  const std::vector<BlockWork> works = WorkOfBlocks(model);
  ASSERT_EQ(works.size(), 4u);
  for (size_t i = 0; i < works.size(); ++i) {
    const auto macs = static_cast<double>(model.blocks[i]->cost.forward_macs);
    ExpectWork(works[i], macs, macs, macs);
  }
}

// By hand, product by product. Attention's two have gradients of both factors.
TEST(BlockWorkTest, FrozenWeightsHaveNoGradientOfTheirOwn) {
  const auto works = WorkOfBlocks(Adapted(Gpt(2), {"*.qkv.q", "*.qkv.v"}));
  const double forward = t * 12 * d * d + 2 * t * t * d + 2 * t * 2 * r * d;
  const double behind_qkv = t * 9 * d * d + 2 * 2 * t * t * d;
  ExpectWork(works[0], 0, 0, 0);
  ExpectWork(works[1], forward, behind_qkv + 2 * t * r * d, 2 * t * 2 * r * d);
  ExpectWork(works[2], forward, behind_qkv + t * 3 * d * d + 2 * t * 2 * r * d, 2 * t * 2 * r * d);
  ExpectWork(works[3], t * v * d, t * v * d, 0);
}

// Backward does once more what it recomputes, where it comes by.
TEST(BlockWorkTest, WhatIsRecomputedCountsAsInputGradient) {
  Model model = Gpt(2);
  model.blocks[1]->recomputed.whole = true;
  model.blocks[2]->recomputed.operations = {"attention", "mlp"};
  const double block = t * 12 * d * d + 2 * t * t * d;
  const auto works = WorkOfBlocks(model);
  ExpectWork(works[1], block, 2 * block, block);
  ExpectWork(works[2], block, block + 2 * t * t * d + t * 8 * d * d, block);
  Model adapted = Adapted(Gpt(2), {"blocks.1.*.qkv.q"});
  for (const auto& each : adapted.blocks) each->recomputed.whole = true;
  EXPECT_EQ(WorkOfBlocks(adapted)[1].input_gradient, 0);
  EXPECT_GT(WorkOfBlocks(adapted)[2].input_gradient, block);
}

TEST(BlockWorkTest, BeforeTheFirstAdapterThereIsNoBackward) {
  const auto works = WorkOfBlocks(Adapted(Gpt(2), {"blocks.1.network.up"}));
  const double forward = t * 12 * d * d + 2 * t * t * d;
  ExpectWork(works[1], forward, 0, 0);
  // From the logits back to the first product of the adapter: down, and B [4 d, r].
  const double a = t * r * d, b = t * 4 * d * r;
  ExpectWork(works[2], forward + a + b, t * 4 * d * d + b, a + b);
}

// Convolutions: A has the layer's window, B is 1 x 1.
TEST(BlockWorkTest, CountsConvolutionsSo) {
  constexpr double c = 8, pixels = 32 * 32;
  const auto works = WorkOfBlocks(
      Adapted(MakeResNet({.depth = 18, .classes = 10, .width = static_cast<int64_t>(c)}), {"*"}));
  const double stem = pixels * 9 * 3 * c, a_stem = pixels * r * 9 * 3, b = pixels * c * r;
  ExpectWork(works[0], stem + a_stem + b, b, a_stem + b);
  const double convolution = pixels * 9 * c * c, a = pixels * r * 9 * c;
  ExpectWork(works[1], 2 * (convolution + a + b), 2 * (convolution + a + b), 2 * (a + b));
}

// The blocks before the first adapter run forward only, so that their stage has room for more.
TEST(BlockWorkTest, StagesAreEvenedOutByIt) {
  const auto even = [](const Model& model) {
    return EvenBalance(BalanceCosts(model, {}, BalanceOption::By::kCost, 1), 2);
  };
  const std::vector<int64_t> full = even(Gpt(8));
  EXPECT_EQ(full, even(Adapted(Gpt(8), {"blocks.*"})));
  const std::vector<int64_t> late = even(Adapted(Gpt(8), {"blocks.6.*", "blocks.7.*"}));
  EXPECT_GT(late[0], full[0]);
}

}  // namespace
}  // namespace lockstep
