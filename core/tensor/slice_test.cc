#include "core/tensor/slice.h"

#include <tuple>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace lockstep {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

using Piece = std::tuple<int64_t, int64_t, int64_t>;  // in the whole, in the part, elements

std::vector<Piece> ElementRanges(const Slice& slice, const std::vector<int64_t>& whole) {
  std::vector<Piece> runs;
  for (const ElementRange& run : slice.ElementRanges(whole)) {
    runs.emplace_back(run.in_whole, run.in_slice, run.elements);
  }
  return runs;
}

TEST(SliceTest, PartsDifferByOneAtMostAndCoverEverything) {
  for (int64_t extent : {0, 1, 2, 7, 12, 1000}) {
    for (int64_t parts : {1, 2, 3, 5}) {
      int64_t next = 0;
      for (int64_t i = 0; i < parts; ++i) {
        const Range part = EvenRange(extent, parts, i);
        EXPECT_EQ(part.first, next);
        EXPECT_GE(part.count, extent / parts);
        EXPECT_LE(part.count, (extent + parts - 1) / parts);
        next += part.count;
      }
      EXPECT_EQ(next, extent);
    }
  }
}

TEST(SliceTest, RowsAreOneRunARange) {
  const Slice packed = {.dimension = 0, .ranges = {{1, 2}, {4, 1}}};
  EXPECT_EQ(packed.extent(), 3);
  EXPECT_EQ(packed.ShapeOf({6, 5}), (Shape{3, 5}));
  EXPECT_THAT(ElementRanges(packed, {6, 5}), ElementsAre(Piece(5, 0, 10), Piece(20, 10, 5)));
}

TEST(SliceTest, ColumnsAreOneRunARow) {
  const Slice columns = {.dimension = 1, .ranges = {{2, 3}}};
  EXPECT_THAT(ElementRanges(columns, {2, 5}), ElementsAre(Piece(2, 0, 3), Piece(7, 3, 3)));
  const Slice channels = {.dimension = 3, .ranges = {{1, 1}}};
  EXPECT_EQ(channels.ShapeOf({1, 1, 2, 4}), (Shape{1, 1, 2, 1}));
  EXPECT_THAT(ElementRanges(channels, {1, 1, 2, 4}), ElementsAre(Piece(1, 0, 1), Piece(5, 1, 1)));
}

TEST(SliceTest, RunsThatFollowOneAnotherAreOne) {
  EXPECT_THAT(ElementRanges({.dimension = 1, .ranges = {{0, 5}}}, {3, 5}),
              ElementsAre(Piece(0, 0, 15)));
  EXPECT_THAT(ElementRanges({.dimension = 0, .ranges = {{1, 1}, {2, 2}}}, {4, 2}),
              ElementsAre(Piece(2, 0, 6)));
}

TEST(SliceTest, AnyPieceOfAPartHasItsRuns) {
  const std::vector<ElementRange> runs =
      Slice{.dimension = 1, .ranges = {{2, 3}}}.ElementRanges({3, 5});
  const auto within = [&runs](const Range& range) {
    std::vector<Piece> pieces;
    for (const ElementRange& run : RangesWithin(runs, range)) {
      pieces.emplace_back(run.in_whole, run.in_slice, run.elements);
    }
    return pieces;
  };
  EXPECT_THAT(within({0, 9}), ElementsAre(Piece(2, 0, 3), Piece(7, 3, 3), Piece(12, 6, 3)));
  EXPECT_THAT(within({1, 6}), ElementsAre(Piece(3, 0, 2), Piece(7, 2, 3), Piece(12, 5, 1)));
  EXPECT_THAT(within({4, 1}), ElementsAre(Piece(8, 0, 1)));
  EXPECT_THAT(within({3, 0}), IsEmpty());
  EXPECT_THAT(within({9, 0}), IsEmpty());
}

TEST(SliceTest, MayBeEmpty) {
  EXPECT_THAT(ElementRanges({.dimension = 0, .ranges = {{4, 0}}}, {4, 2}), IsEmpty());
  EXPECT_THAT(ElementRanges({.dimension = 1, .ranges = {{0, 2}}}, {0, 2}), IsEmpty());
}

}  // namespace
}  // namespace lockstep
