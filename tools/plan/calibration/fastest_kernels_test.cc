#include "tools/plan/calibration/fastest_kernels.h"

#include <cmath>
#include <cstddef>
#include <iterator>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace lockstep {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

// Products of [rows, width] x [width, width] at a rate that grows with the width.
MeasuredKernel Product(double rows, double width, double slower = 1) {
  MeasuredKernel row;
  row.kernel = "Linear";
  row.extents = {{"w", {width, width}}, {"x", {rows, width}}};
  row.work = 2 * rows * width * width;
  row.seconds = slower * row.work / (1e9 * std::sqrt(width));
  return row;
}

// Each training multiplies matrices of one width, in two numbers of rows.
std::vector<MeasuredKernel> TrainingOf(double width, double slower = 1) {
  return {Product(64, width, slower), Product(256, width, slower)};
}

constexpr double kWidths[] = {32, 64, 128, 256, 512};

TEST(FastestKernelsTest, TheFastestTimeCounts) {
  FastestKernels kernels;
  kernels.Add(0, TrainingOf(32, 3));
  kernels.Add(1, {Product(64, 32)});
  kernels.Add(0, TrainingOf(32, 2));
  const std::vector<MeasuredKernel> rows = kernels.Rows();
  ASSERT_EQ(rows.size(), 2);
  EXPECT_EQ(rows[0].seconds, Product(64, 32).seconds);
  EXPECT_EQ(rows[1].seconds, Product(256, 32, 2).seconds);
}

TEST(FastestKernelsTest, SuspectsAreThoseThatWereAlwaysDisturbed) {
  FastestKernels kernels;
  for (size_t i = 0; i < std::size(kWidths); ++i) kernels.Add(i, TrainingOf(kWidths[i]));
  EXPECT_THAT(kernels.Suspects(), IsEmpty());
  kernels.Add(1, TrainingOf(kWidths[1], 5));
  EXPECT_THAT(kernels.Suspects(), IsEmpty()) << "one visit was undisturbed";

  FastestKernels disturbed;
  for (size_t i = 0; i < std::size(kWidths); ++i) {
    disturbed.Add(i, TrainingOf(kWidths[i], i == 1 || i == 4 ? 5 : 1));
  }
  // Both lose the same share, and the larger one more time.
  EXPECT_THAT(disturbed.Suspects(), ElementsAre(4, 1));
  disturbed.Add(4, TrainingOf(kWidths[4]));
  EXPECT_THAT(disturbed.Suspects(), ElementsAre(1));
}

}  // namespace
}  // namespace lockstep
