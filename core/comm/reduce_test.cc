#include "core/comm/reduce.h"

#include <bit>    // std::bit_floor
#include <cmath>  // std::ldexp
#include <cstddef>
#include <cstdint>
#include <cstring>  // std::memcmp
#include <limits>
#include <type_traits>
#include <vector>

#include "core/base/half.h"
#include "gtest/gtest.h"

namespace lockstep {
namespace {

template <typename T>
std::byte* Raw(std::vector<T>& v) {
  return reinterpret_cast<std::byte*>(v.data());
}

template <typename T>
T ReduceOne(DType dtype, ReduceOp op, std::vector<T> values) {
  std::vector<const std::byte*> inputs;
  for (T& value : values) inputs.push_back(reinterpret_cast<const std::byte*>(&value));
  T result{};
  ReduceByTree(dtype, op, inputs, {reinterpret_cast<std::byte*>(&result)}, 0, 1);
  return result;
}

TEST(ReduceTest, Operations) {
  const std::vector<float> x = {3, -2, 5, 4};
  EXPECT_EQ(ReduceOne(DType::kF32, ReduceOp::kSum, x), 10);
  EXPECT_EQ(ReduceOne(DType::kF32, ReduceOp::kProduct, x), -120);
  EXPECT_EQ(ReduceOne(DType::kF32, ReduceOp::kMin, x), -2);
  EXPECT_EQ(ReduceOne(DType::kF32, ReduceOp::kMax, x), 5);
  EXPECT_EQ(ReduceOne(DType::kF32, ReduceOp::kAverage, x), 2.5f);
  EXPECT_EQ(ReduceOne<double>(DType::kF64, ReduceOp::kAverage, {1, 2}), 1.5);
  EXPECT_EQ(ReduceOne<int32_t>(DType::kI32, ReduceOp::kAverage, {-5, -2}), -3);  // to zero
  EXPECT_EQ(ReduceOne<int64_t>(DType::kI64, ReduceOp::kMax, {-5, int64_t{1} << 40}),
            int64_t{1} << 40);
}

TEST(ReduceTest, IntegersWrapAround) {
  constexpr int32_t kMost = std::numeric_limits<int32_t>::max();
  constexpr int32_t kLeast = std::numeric_limits<int32_t>::min();
  EXPECT_EQ(ReduceOne<int32_t>(DType::kI32, ReduceOp::kSum, {kMost, 1}), kLeast);
  EXPECT_EQ(ReduceOne<int32_t>(DType::kI32, ReduceOp::kProduct, {1 << 30, 4}), 0);
}

TEST(ReduceTest, AddsAlongTheTree) {
  EXPECT_EQ(ReduceOne<float>(DType::kF32, ReduceOp::kSum, {1e8f, 1, -1e8f, 1}), 0);
  EXPECT_EQ(ReduceOne<float>(DType::kF32, ReduceOp::kSum, {1e8f, -1e8f, 1, 1}), 2);
  EXPECT_EQ(ReduceOne<double>(DType::kF64, ReduceOp::kSum, {1e17, 1, -1e17, 1}), 0);
}

// The tree word by word, whose left half is the largest power of two below `count`.
float TreeOf(const std::vector<float>& x, size_t first, size_t count) {
  if (count == 1) return x[first];
  const size_t left = std::bit_floor(count - 1);
  return TreeOf(x, first, left) + TreeOf(x, first + left, count - left);
}

TEST(ReduceTest, AnyNumberOfInputsFollowsTheTree) {
  for (size_t count = 1; count <= 70; ++count) {
    std::vector<float> x;
    for (size_t i = 0; i < count; ++i) x.push_back(std::ldexp(1.0f + 0.1f * i, (i * 7) % 11));
    EXPECT_EQ(ReduceOne(DType::kF32, ReduceOp::kSum, x), TreeOf(x, 0, count)) << count;
  }
}

TEST(ReduceTest, SixteenBitsAreRoundedAtEachNode) {
  const auto half = [](float x) { return FloatToHalf(x); };
  EXPECT_EQ(ReduceOne<uint16_t>(DType::kF16, ReduceOp::kSum, {half(2048), half(1), half(1)}),
            half(2048));
  EXPECT_EQ(
      ReduceOne<uint16_t>(DType::kF16, ReduceOp::kSum, {half(2048), half(0), half(1), half(1)}),
      half(2050));
  // Beyond half's range on the way.
  EXPECT_EQ(
      ReduceOne<uint16_t>(DType::kF16, ReduceOp::kSum, {half(60000), half(60000), half(-60000)}),
      half(std::numeric_limits<float>::infinity()));
  EXPECT_EQ(ReduceOne<uint16_t>(DType::kF16, ReduceOp::kAverage, {half(60000), half(60000)}),
            half(std::numeric_limits<float>::infinity()));
  EXPECT_EQ(ReduceOne<uint16_t>(DType::kF16, ReduceOp::kAverage, {half(3), half(4)}), half(3.5f));
  const auto bfloat = [](float x) { return FloatToBFloat16(x); };
  EXPECT_EQ(ReduceOne<uint16_t>(DType::kBF16, ReduceOp::kSum, {bfloat(256), bfloat(1), bfloat(1)}),
            bfloat(256));
  EXPECT_EQ(ReduceOne<uint16_t>(DType::kBF16, ReduceOp::kProduct,
                                {bfloat(1.0625f), bfloat(1.0625f), bfloat(1.0625f)}),
            bfloat(BFloat16ToFloat(bfloat(1.0625f * 1.0625f)) * 1.0625f));
}

// Only the slice is written, to all outputs; an output may be an input, of any rank.
void ExpectSlicesAlone(Moves moves) {
  constexpr int64_t kCount = 10'000;  // several blocks
  for (size_t in_place = 0; in_place < 3; ++in_place) {
    std::vector<std::vector<int32_t>> x(3, std::vector<int32_t>(kCount));
    for (int r = 0; r < 3; ++r) {
      for (int i = 0; i < kCount; ++i) x[r][i] = (r + 1) * i;
    }
    const std::vector<int32_t> before = x[in_place];
    std::vector<int32_t> other(kCount, -1);
    ReduceByTree(DType::kI32, ReduceOp::kSum, {Raw(x[0]), Raw(x[1]), Raw(x[2])},
                 {Raw(other), Raw(x[in_place])}, 5, kCount - 3, moves);
    for (int i = 0; i < kCount; ++i) {
      const bool inside = i >= 5 && i < kCount - 3;
      ASSERT_EQ(other[i], inside ? 6 * i : -1) << i;
      ASSERT_EQ(x[in_place][i], inside ? 6 * i : before[i]) << i;
    }
  }
}

TEST(ReduceTest, SlicesAndSharedMemory) {
  for (const Moves moves : {Moves::kBlocks, Moves::kBursts}) ExpectSlicesAlone(moves);
}

// Values of both signs and very different sizes, so that another order of sums gives other bits.
template <typename T>
std::vector<T> Scattered(int64_t count, uint32_t seed) {
  std::vector<T> x(static_cast<size_t>(count));
  for (T& value : x) {
    seed = seed * 1664525 + 1013904223;
    const auto small = static_cast<int32_t>(seed) >> 8;
    value = static_cast<T>(small);
    if constexpr (!std::is_integral_v<T>) value = std::ldexp(value, static_cast<int>(seed % 40));
  }
  return x;
}

template <typename T>
void ExpectBurstsHaveTheBitsOfBlocks(DType dtype) {
  constexpr int64_t kCount = 1000, kBegin = 3;
  for (int leaves = 1; leaves <= 9; ++leaves) {
    std::vector<std::vector<T>> inputs;
    std::vector<const std::byte*> from;
    for (int leaf = 0; leaf < leaves; ++leaf) {
      inputs.push_back(Scattered<T>(kCount, static_cast<uint32_t>(leaf)));
    }
    if constexpr (!std::is_integral_v<T>) inputs.back()[500] = std::numeric_limits<T>::quiet_NaN();
    for (std::vector<T>& input : inputs) from.push_back(Raw(input));
    for (const ReduceOp op :
         {ReduceOp::kSum, ReduceOp::kProduct, ReduceOp::kMin, ReduceOp::kMax, ReduceOp::kAverage}) {
      std::vector<T> blocks(kCount, T{5}), bursts(kCount, T{5});
      ReduceByTree(dtype, op, from, {Raw(blocks)}, kBegin, kCount, Moves::kBlocks);
      ReduceByTree(dtype, op, from, {Raw(bursts)}, kBegin, kCount, Moves::kBursts);
      EXPECT_EQ(std::memcmp(blocks.data(), bursts.data(), kCount * sizeof(T)), 0)
          << Name(dtype) << " " << Name(op) << " of " << leaves;
    }
  }
}

TEST(ReduceTest, BurstsHaveTheBitsOfBlocks) {
  ExpectBurstsHaveTheBitsOfBlocks<float>(DType::kF32);
  ExpectBurstsHaveTheBitsOfBlocks<double>(DType::kF64);
  ExpectBurstsHaveTheBitsOfBlocks<int32_t>(DType::kI32);
  ExpectBurstsHaveTheBitsOfBlocks<int64_t>(DType::kI64);
}

// So many bytes that the outputs are streamed: at any alignment, and nothing beside the slice. The
// 16-bit types go through another copy.
template <typename T>
void ExpectLargeSlicesAreExact(DType dtype, const std::vector<T>& inputs, T sum, Moves moves) {
  constexpr int64_t kCount = 3 << 20;
  for (const int64_t begin : {0, 1, 7}) {
    std::vector<T> x(kCount, inputs[0]), y(kCount, inputs[1]);
    std::vector<T> first(kCount, inputs[2]), second(kCount, inputs[2]);
    const int64_t end = kCount - 5 * begin;
    ReduceByTree(dtype, ReduceOp::kSum, {Raw(x), Raw(y)}, {Raw(first), Raw(second)}, begin, end,
                 moves);
    for (int64_t i = 0; i < kCount; ++i) {
      const T expected = i >= begin && i < end ? sum : inputs[2];
      ASSERT_EQ(first[i], expected) << i << ", slice from " << begin;
      ASSERT_EQ(second[i], expected) << i << ", slice from " << begin;
    }
  }
}

TEST(ReduceTest, LargeSlices) {
  for (const Moves moves : {Moves::kBlocks, Moves::kBursts}) {
    ExpectLargeSlicesAreExact<float>(DType::kF32, {1.5f, 2.25f, -1}, 3.75f, moves);
    ExpectLargeSlicesAreExact<int64_t>(DType::kI64, {5, 6, -1}, 11, moves);
    ExpectLargeSlicesAreExact<uint16_t>(DType::kF16,
                                        {FloatToHalf(1.5f), FloatToHalf(2.25f), FloatToHalf(-1)},
                                        FloatToHalf(3.75f), moves);
  }
}

}  // namespace
}  // namespace lockstep
