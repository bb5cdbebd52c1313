#include "core/base/exact_sum.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

#include "core/base/philox.h"
#include "gtest/gtest.h"

namespace lockstep {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();

// Finite numbers of all magnitudes and both signs.
std::vector<float> Numbers(size_t count) {
  std::vector<uint32_t> bits(count);
  Philox(7).FillBits(bits, 0);
  std::vector<float> numbers;
  for (const uint32_t word : bits) {
    const float number = std::bit_cast<float>(word);
    if (std::isfinite(number)) numbers.push_back(number);
  }
  return numbers;
}

template <typename Numbers>
ExactSum SumOf(const Numbers& numbers) {
  ExactSum sum;
  for (const float number : numbers) sum.Add(number);
  return sum;
}

TEST(ExactSumTest, OneNumberIsItself) {
  for (float number : Numbers(10000)) EXPECT_EQ(SumOf(std::vector{number}).Total(), number);
  for (float number : {0.0f, std::numeric_limits<float>::denorm_min(),
                       std::numeric_limits<float>::max(), -std::numeric_limits<float>::max()}) {
    EXPECT_EQ(SumOf(std::vector{number}).Total(), number);
  }
}

TEST(ExactSumTest, WhatCancelsLeavesTheRest) {
  std::vector<float> numbers = Numbers(2000);
  const size_t count = numbers.size();
  for (size_t i = 0; i < count; ++i) numbers.push_back(-numbers[i]);
  numbers.push_back(0x1.8p-140f);
  EXPECT_EQ(SumOf(numbers).Total(), 0x1.8p-140);
}

TEST(ExactSumTest, OrderAndDivisionDoNotMatter) {
  std::vector<float> numbers = Numbers(5000);
  const ExactSum all = SumOf(numbers);
  for (size_t parts : {2, 3, 7}) {
    std::ranges::reverse(numbers);
    std::vector<ExactSum> sums(parts);
    for (size_t i = 0; i < numbers.size(); ++i) sums[i * i % parts].Add(numbers[i]);
    ExactSum sum;
    for (const ExactSum& part : sums) sum.Add(part);
    EXPECT_EQ(sum, all);
    EXPECT_EQ(sum.Total(), all.Total());
  }
}

TEST(ExactSumTest, TheTotalIsRoundedOnce) {
  // Doubles add these up with an error that grows; integers do not.
  std::vector<float> numbers;
  int64_t expected = 0;  // in units of 2^-20
  for (int64_t i = 0; i < 300000; ++i) {
    const int64_t units = i * 7919 % 16777216;
    expected += units;
    numbers.push_back(std::ldexp(static_cast<float>(units), -20));
  }
  EXPECT_EQ(SumOf(numbers).Total(), std::ldexp(static_cast<double>(expected), -20));
  numbers.push_back(0x1p80f);
  numbers.push_back(-0x1p-60f);
  numbers.push_back(-0x1p80f);
  EXPECT_EQ(SumOf(numbers).Total(), std::ldexp(static_cast<double>(expected), -20) - 0x1p-60);
}

TEST(ExactSumTest, InfinityAndNaNPass) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  EXPECT_EQ(SumOf(std::vector{1.0f, kInfinity, 2.0f}).Total(), kInfinity);
  EXPECT_EQ(SumOf(std::vector{-kInfinity, 1e30f}).Total(), -kInfinity);
  EXPECT_TRUE(std::isnan(SumOf(std::vector{1.0f, nan}).Total()));
  EXPECT_TRUE(std::isnan(SumOf(std::vector{kInfinity, -kInfinity}).Total()));
  ExactSum sum = SumOf(std::vector{2.0f});
  sum.Add(SumOf(std::vector{kInfinity}));
  EXPECT_EQ(sum.Total(), kInfinity);
}

}  // namespace
}  // namespace lockstep
