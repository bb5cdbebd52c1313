#include "core/base/token_order.h"

#include <cstdint>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace lockstep {
namespace {

using testing::ElementsAre;

std::vector<int64_t> Positions(const TokenOrder& order, int64_t leaf) {
  std::vector<int64_t> positions;
  for (int64_t p = 0; p < order.leaf_time(); ++p) positions.push_back(order.PositionOf(leaf, p));
  return positions;
}

TEST(TokenOrderTest, ALeafIsTwoChunks) {
  const TokenOrder order{.samples = 2, .time = 12, .leaves = 3};
  EXPECT_THAT(Positions(order, 0), ElementsAre(0, 1, 10, 11));
  EXPECT_THAT(Positions(order, 1), ElementsAre(2, 3, 8, 9));
  EXPECT_THAT(Positions(order, 2), ElementsAre(4, 5, 6, 7));
  EXPECT_EQ(order.chunk(), 2);
  EXPECT_EQ(order.leaf_rows(), 8);
  EXPECT_EQ(order.rows(), 24);
}

TEST(TokenOrderTest, OneLeafIsTheOrderOfPositions) {
  const TokenOrder order{.samples = 1, .time = 5};
  EXPECT_TRUE(order.Fits());
  EXPECT_THAT(Positions(order, 0), ElementsAre(0, 1, 2, 3, 4));
}

TEST(TokenOrderTest, EveryRowIsOneTokenOfOneSample) {
  const TokenOrder order{.samples = 3, .time = 24, .leaves = 4};
  std::vector<bool> positions(72, false);
  int64_t row = 0;
  for (int64_t leaf = 0; leaf < 4; ++leaf) {
    for (int64_t sample = 0; sample < 3; ++sample) {
      for (int64_t place = 0; place < order.leaf_time(); ++place, ++row) {
        EXPECT_EQ(order.RowOf(leaf, sample, place), row);
        const int64_t token = sample * 24 + order.PositionOf(leaf, place);
        EXPECT_FALSE(positions[token]) << token;
        positions[token] = true;
      }
    }
  }
  EXPECT_EQ(row, order.rows());
}

// Two leaves hold zig-zag shares of two ranks, and the four of four ranks lie within them.
TEST(TokenOrderTest, AlignedRunsOfLeavesHoldTheTokensOfFewerLeaves) {
  const TokenOrder two{.samples = 1, .time = 32, .leaves = 2},
      four{.samples = 1, .time = 32, .leaves = 4};
  for (int64_t leaf = 0; leaf < 2; ++leaf) {
    std::vector<int64_t> run = Positions(four, 2 * leaf);
    for (int64_t position : Positions(four, 2 * leaf + 1)) run.push_back(position);
    EXPECT_THAT(run, testing::UnorderedElementsAreArray(Positions(two, leaf)));
  }
}

TEST(TokenOrderTest, AQuerySeesThePlacesOfItsPositionAndBefore) {
  for (const int64_t leaves : {1, 2, 3, 4}) {
    const TokenOrder order{.samples = 1, .time = 24, .leaves = leaves};
    for (int64_t position = 0; position < order.time; ++position) {
      for (int64_t leaf = 0; leaf < leaves; ++leaf) {
        const int64_t visible = order.VisibleOf(leaf, position);
        for (int64_t place = 0; place < order.leaf_time(); ++place) {
          EXPECT_EQ(place < visible, order.PositionOf(leaf, place) <= position)
              << leaves << " leaves, leaf " << leaf << ", place " << place;
        }
      }
    }
  }
}

TEST(TokenOrderTest, TheTimeFitsWholeChunks) {
  const auto fits = [](int64_t time, int64_t leaves) {
    return TokenOrder{.samples = 1, .time = time, .leaves = leaves}.Fits();
  };
  EXPECT_TRUE(fits(5, 1));
  EXPECT_TRUE(fits(12, 3));
  EXPECT_FALSE(fits(10, 2));
  EXPECT_FALSE(fits(12, 0));
}

// What a rank holds is one range of the rows of all.
TEST(TokenOrderTest, RanksHoldRunsOfLeaves) {
  const TokenOrder order{.samples = 3, .time = 32, .leaves = 8, .runs = 4, .run = 2};
  EXPECT_EQ(order.held_leaves(), 2);
  EXPECT_EQ(order.first_leaf(), 4);
  EXPECT_EQ(order.first_row(), order.RowOf(4, 0, 0));
  EXPECT_EQ(order.first_row() + order.held_rows(), order.RowOf(6, 0, 0));
}

}  // namespace
}  // namespace lockstep
