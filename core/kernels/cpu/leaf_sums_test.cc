#include "core/kernels/cpu/leaf_sums.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <vector>

#include "core/base/parallel.h"
#include "core/base/philox.h"
#include "gtest/gtest.h"

namespace lockstep::cpu {
namespace {

constexpr int64_t kWidth = 19;

// Values of many magnitudes, so that another order of the same sums gives other bits.
std::vector<float> Values(int64_t rows) {
  std::vector<float> x(rows * kWidth);
  Philox(PhiloxKey(1, "test", "leaf_sums")).FillNormal(x, 0, 0, 1);
  for (size_t i = 0; i < x.size(); ++i) x[i] = std::ldexp(x[i], static_cast<int>(i % 13) - 6);
  return x;
}

// The definition: a leaf adds its rows in order; a tree splits at the largest power of two below
// its number of leaves.
float Tree(const std::vector<float>& x, int64_t column, int64_t rows, int64_t first,
           int64_t count) {
  if (count > 1) {
    const auto left = static_cast<int64_t>(std::bit_floor(static_cast<uint64_t>(count - 1)));
    return Tree(x, column, rows, first, left) + Tree(x, column, rows, first + left, count - left);
  }
  float sum = 0;
  for (int64_t r = first * kLeafRows; r < std::min((first + 1) * kLeafRows, rows); ++r) {
    sum += x[r * kWidth + column];
  }
  return sum;
}

std::vector<float> Sums(const std::vector<float>& x, int64_t rows) {
  LeafSums sums(RowLeaves(rows), RowLeafChunks(rows, 1), kWidth);
  ForRowLeaves(rows, 1, [&](int chunk, int64_t leaf, int64_t first, int64_t count) {
    float* leaf_sums = sums.Open(chunk, leaf);
    for (int64_t r = first; r < first + count; ++r) {
      for (int64_t i = 0; i < kWidth; ++i) leaf_sums[i] += x[r * kWidth + i];
    }
    sums.Close(chunk);
  });
  const float* result = sums.Finish();
  return std::vector<float>(result, result + kWidth);
}

TEST(LeafSumsTest, AnyNumberOfThreadsMakesTheTreeOverTheLeaves) {
  const int threads_before = MaxThreads();
  for (const int64_t rows : {1, 127, 128, 129, 700, 896, 1700}) {
    const std::vector<float> x = Values(rows);
    for (const int threads : {1, 2, 3, 5}) {
      SetThreads(threads);
      const std::vector<float> sums = Sums(x, rows);
      for (int64_t i = 0; i < kWidth; ++i) {
        EXPECT_EQ(sums[i], Tree(x, i, rows, 0, RowLeaves(rows)))
            << rows << " rows, " << threads << " threads, column " << i;
      }
    }
  }
  SetThreads(threads_before);
}

TEST(LeafSumsTest, SkippedLoopsLeaveZeros) {
  const LoopsSkipped skipped;
  EXPECT_EQ(Sums({}, 1000), std::vector<float>(kWidth, 0.0f));
}

}  // namespace
}  // namespace lockstep::cpu
