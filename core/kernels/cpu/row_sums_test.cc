#include "core/kernels/cpu/row_sums.h"

#include <array>
#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

#include "gtest/gtest.h"

namespace lockstep::cpu {
namespace {

// Values of many magnitudes, so that another order of the same sums gives other bits.
std::vector<float> Values(int64_t count) {
  std::vector<float> x(count);
  uint32_t state = 1;
  for (int64_t i = 0; i < count; ++i) {
    state = state * 1664525 + 1013904223;
    x[i] = std::ldexp(static_cast<float>(state >> 8) - 0x1p23f, static_cast<int>(i % 7) - 20);
  }
  return x;
}

// The definition, element by element, with a function that no compiler makes into vectors.
[[gnu::noinline]] void AddOne(float x, float& lane) { lane += x; }

float ByDefinition(const std::vector<float>& x) {
  std::array<float, 16> lanes = {};
  for (size_t i = 0; i < x.size(); ++i) AddOne(x[i], lanes[i % 16]);
  for (int half : {8, 4, 2, 1}) {
    for (int l = 0; l < half; ++l) AddOne(lanes[l + half], lanes[l]);
  }
  return lanes[0];
}

constexpr int64_t kCounts[] = {0, 1, 7, 15, 16, 17, 31, 32, 33, 100, 768, 1000};

TEST(RowSumsTest, SumsFollowTheLanes) {
  for (const int64_t count : kCounts) {
    const std::vector<float> x = Values(count);
    EXPECT_EQ(SumRow(count, [&](int64_t i) { return x[i]; }), ByDefinition(x)) << count;
    EXPECT_EQ(SumOfRow(x.data(), count), ByDefinition(x)) << count;
    std::vector<float> squares(x);
    for (float& value : squares) value *= value;
    std::vector<int> calls(count);
    const TwoSums two = SumRowTwice(count, [&](int64_t i) -> TwoSums {
      ++calls[i];
      return {x[i], x[i] * x[i]};
    });
    EXPECT_EQ(two.first, ByDefinition(x)) << count;
    EXPECT_EQ(two.second, ByDefinition(squares)) << count;
    EXPECT_EQ(calls, std::vector<int>(count, 1));
  }
}

TEST(RowSumsTest, TheLargestIgnoresNaN) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const float infinity = std::numeric_limits<float>::infinity();
  EXPECT_EQ(LargestOfRow(nullptr, 0), -infinity);
  for (const int64_t count : kCounts) {
    std::vector<float> x(count, nan);
    EXPECT_EQ(LargestOfRow(x.data(), count), -infinity) << count;
    for (int64_t at = 0; at < count; at += 5) {
      x.assign(count, -3.0f);
      x[at] = 2;
      if (at > 0) x[at - 1] = nan;
      EXPECT_EQ(LargestOfRow(x.data(), count), 2) << count << " at " << at;
    }
  }
}

}  // namespace
}  // namespace lockstep::cpu
