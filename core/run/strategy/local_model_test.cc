#include "core/run/strategy/local_model.h"

#include <cmath>
#include <vector>

#include "core/run/testing/tested_local_model.h"
#include "gtest/gtest.h"

namespace lockstep {
namespace {

TEST(LocalModelTest, NamesAllTensorsOfTheModelAndHoldsItsOwn) {
  ForStages({{0, 1}, {1, 3}}, [](LocalModelUnderTest& rank, int index) {
    const std::vector<StateTensor> state = rank.local_model().State();
    ASSERT_EQ(state.size(), 1u);  // the tied ones are no tensors of their own
    EXPECT_EQ(state[0].name, "a.weight");
    EXPECT_EQ(state[0].full_shape, (Shape{kSquareWidth, kSquareWidth}));
    EXPECT_EQ(state[0].tensor.elements(), index == 0 ? kSquareWidth * kSquareWidth : 0);
    EXPECT_EQ(rank.local_model().Trained()[0].gradient.elements(),
              index == 0 ? kSquareWidth * kSquareWidth : 0);
    EXPECT_EQ(rank.local_model().has_first(), index == 0);
    EXPECT_EQ(rank.local_model().has_last(), index == 1);
    // Owner and two gradients that come to it; two values, two gradients and no optimizer state.
    const int64_t matrix = AlignedBytes(kSquareWidth * kSquareWidth * 4);
    std::vector<int64_t> bytes;
    for (const auto& memory : rank.local_model().Predict().memory) bytes.push_back(memory.bytes);
    EXPECT_EQ(bytes, index == 0 ? std::vector<int64_t>({matrix, 3 * matrix, 2 * matrix})
                                : std::vector<int64_t>({2 * matrix, 2 * matrix, 0}));
  });
}

TEST(LocalModelTest, TiedValuesBeginWithTheBitsOfTheirOwner) {
  std::vector<float> owner;
  ForStages({{0, 3}}, [&](LocalModelUnderTest& rank, int) { owner = Look(rank.weight(0).value); });
  ForStages({{0, 1}, {1, 2}, {2, 3}}, [&](LocalModelUnderTest& rank, int index) {
    EXPECT_EQ(Look(rank.weight(index).value), owner);
  });
}

TEST(LocalModelTest, OtherBlocksHaveNoMemory) {
  ForStages({{0, 2}, {2, 3}}, [](LocalModelUnderTest& rank, int index) {
    for (int block = 0; block < 3; ++block) {
      const bool is_here = (block == 2) == (index == 1);
      Parameter& weight = rank.weight(block);
      EXPECT_EQ(weight.gradient.defined(), is_here) << block;
      if (index == 1) {
        EXPECT_EQ(weight.value.defined(), is_here) << block;
      }
    }
    const MemoryBooks books = rank.kernels().allocator().books();
    const int64_t matrix = AlignedBytes(kSquareWidth * kSquareWidth * 4);
    EXPECT_EQ(books.live(MemoryClass::kParameters), matrix);
    EXPECT_EQ(books.live(MemoryClass::kGradients), (index == 0 ? 2 : 1) * matrix);
  });
}

TEST(LocalModelTest, AReplicaHasAllBlocks) {
  const BlockRange all;
  ForStages({all}, [](LocalModelUnderTest& rank, int) {
    EXPECT_TRUE(rank.local_model().has_first());
    EXPECT_TRUE(rank.local_model().has_last());
    EXPECT_EQ(rank.local_model().ranges()[0].size(), 3);
  });
}

// Trees nest: features inside tokens. Of (1e8 + 1) + (-1e8 + 1) each half loses its 1; with tokens
// inside features it would be (1e8 - 1e8) + (1 + 1).
TEST(CompleteGradientTest, FeatureLeavesLieInsideTokenLeaves) {
  CpuAllocator allocator;
  CpuKernels kernels(allocator);
  Parameter parameter("weight", {1}, Init::Constant(0));
  parameter.value = kernels.Empty({1});
  parameter.feature_leaves = 2;
  parameter.MakeAccumulators(kernels, 4);
  const float leaves[] = {1e8f, 1, -1e8f, 1};
  for (int i = 0; i < 4; ++i) {
    kernels.Fill(parameter.NextContributionOf(i, kernels).tensor, leaves[i]);
  }
  CompleteGradient(kernels, parameter);
  EXPECT_EQ(Look(parameter.gradient)[0], 0);
  // The next shard has no contribution: an empty leaf is -0, which changes no sum.
  parameter.ClearGradient();
  CompleteGradient(kernels, parameter);
  EXPECT_TRUE(std::signbit(Look(parameter.gradient)[0]));
  EXPECT_EQ(Look(parameter.gradient)[0], 0);
}

}  // namespace
}  // namespace lockstep
