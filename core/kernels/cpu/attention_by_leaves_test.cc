// The order of sums of attention over token leaves: what pairs of leaves give alone, added along
// the tree by its definition, has the bits of the whole call.

#include <algorithm>
#include <bit>
#include <cstdint>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "core/base/philox.h"
#include "core/base/token_order.h"
#include "core/kernels/cpu/cpu_kernels.h"
#include "core/kernels/cpu/float_elements.h"
#include "gtest/gtest.h"

namespace lockstep {
namespace {

using Floats = std::vector<float>;

// The tree over leaves [first, first + count), by its definition: it splits at the largest power of
// two below count. Each node is rounded.
Floats Tree(const std::vector<Floats>& leaves, size_t first, size_t count, DType dtype) {
  if (count == 1) return leaves[first];
  size_t split = 1;
  while (2 * split < count) split *= 2;
  Floats sum = Tree(leaves, first, split, dtype);
  const Floats right = Tree(leaves, first + split, count - split, dtype);
  for (size_t i = 0; i < sum.size(); ++i) sum[i] += right[i];
  cpu::RoundFloats(dtype, static_cast<int64_t>(sum.size()), sum.data());
  return sum;
}
Floats Tree(const std::vector<Floats>& leaves, DType dtype) {
  return Tree(leaves, 0, leaves.size(), dtype);
}

class AttentionByLeavesTest : public testing::TestWithParam<DType> {
 protected:
  static constexpr int64_t kHeads = 2, kHeadWidth = 24, kWidth = kHeads * kHeadWidth;

  struct Sums {
    Tensor y, log_sum_exp;
  };

  AttentionByLeavesTest() : kernels_(allocator_) {}

  static Attention Options(float dropout, int64_t key_heads = kHeads) {
    return {.heads = kHeads,
            .head_width = kHeadWidth,
            .dropout = {.probability = dropout, .key = 3, .counter = 5},
            .total_heads = 5,
            .first_head = 1,
            .key_heads = key_heads};
  }

  Tensor Normal(const Shape& shape, uint64_t stream) {
    const Tensor x = kernels_.Empty(shape), rounded = kernels_.Empty(shape, GetParam());
    Philox(stream).FillNormal({x.data<float>(), static_cast<size_t>(x.elements())}, 0, 0, 1);
    kernels_.Cast(x, rounded);
    return rounded;
  }
  Floats Download(const Tensor& x) {
    Floats result(static_cast<size_t>(x.elements()));
    cpu::LoadFloats(x, 0, x.elements(), result.data());
    return result;
  }
  // x with zeros in `columns` of all rows for which `zero` holds.
  Tensor WithZeros(const Tensor& x, const Range& columns,
                   const std::function<bool(int64_t row)>& zero) {
    Floats values = Download(x);
    const int64_t width = x.shape()[2];
    for (int64_t row = 0; row < x.elements() / width; ++row) {
      if (zero(row)) std::fill_n(values.begin() + row * width + columns.first, columns.count, 0.0f);
    }
    const Tensor result = kernels_.EmptyLike(x);
    cpu::StoreFloats(values.data(), 0, x.elements(), result);
    return result;
  }
  Sums Forward(const Attention& attention, int64_t leaves, const Tensor& qkv) {
    const Tensor y = kernels_.Empty(qkv.shape().With(2, attention.heads * kHeadWidth), GetParam());
    const Tensor log_sum_exp = kernels_.Empty({qkv.shape()[0], attention.heads, qkv.shape()[1]});
    kernels_.AttentionForwardByTokenLeaves(attention, leaves, qkv, y, log_sum_exp);
    return {y, log_sum_exp};
  }
  Tensor Backward(const Attention& attention, int64_t leaves, const Tensor& qkv, const Sums& sums,
                  const Tensor& dy) {
    const Tensor dqkv = kernels_.EmptyLike(qkv);
    kernels_.AttentionBackwardByTokenLeaves(attention, leaves, qkv, sums.y, sums.log_sum_exp, dy,
                                            dqkv);
    return dqkv;
  }
  // Columns of all rows of dqkv.
  Floats Columns(const Tensor& dqkv, const Range& columns) {
    const Floats all = Download(dqkv);
    const int64_t width = dqkv.shape()[2];
    Floats result;
    for (auto row = all.begin(); row != all.end(); row += width) {
      const auto begin = row + columns.first;
      result.insert(result.end(), begin, begin + columns.count);
    }
    return result;
  }
  static void ExpectSameBits(const Floats& expected, const Floats& actual,
                             const std::string& what) {
    ASSERT_EQ(expected.size(), actual.size());
    size_t different = 0;
    for (size_t i = 0; i < expected.size(); ++i) {
      // A gradient of exactly zero has either sign: pairs are made alone by adding zeros.
      if (expected[i] == 0 && actual[i] == 0) continue;
      different += std::bit_cast<uint32_t>(expected[i]) != std::bit_cast<uint32_t>(actual[i]);
    }
    EXPECT_EQ(different, 0u) << what << ": of " << expected.size();
  }

  CpuAllocator allocator_;
  CpuKernels kernels_;
};

TEST_P(AttentionByLeavesTest, GradientsAreTreesOverLeaves) {
  for (const int64_t leaves : {2, 3, 4, 7}) {
    for (const int64_t key_heads : {kHeads, int64_t{1}}) {
      const TokenOrder order{.samples = 2, .time = 2 * leaves * 53, .leaves = leaves};
      const Attention attention = Options(leaves % 2 == 0 ? 0.25f : 0.0f, key_heads);
      const int64_t key_width = attention.key_width();
      const Range query_columns = {0, kWidth}, key_columns = {kWidth, key_width},
                  value_columns = {kWidth + key_width, key_width};
      const Shape shape = {leaves * order.samples, order.leaf_time(), kWidth};
      const Tensor qkv = Normal(shape.With(2, attention.packed_width()), 1), dy = Normal(shape, 2);
      const Sums sums = Forward(attention, leaves, qkv);
      const Tensor whole = Backward(attention, leaves, qkv, sums, dy);
      std::vector<Floats> dqueries, dkeys, dvalues;
      for (int64_t leaf = 0; leaf < leaves; ++leaf) {
        const auto is_other = [&](int64_t row) { return row / order.leaf_rows() != leaf; };
        // Keys of zero get and give nothing; log-sum-exp, y and dy say what softmax needs of them.
        dqueries.push_back(
            Columns(Backward(attention, leaves, WithZeros(qkv, key_columns, is_other), sums, dy),
                    query_columns));
        // Queries without a gradient give none.
        const Tensor alone =
            Backward(attention, leaves, qkv, sums, WithZeros(dy, query_columns, is_other));
        dkeys.push_back(Columns(alone, key_columns));
        dvalues.push_back(Columns(alone, value_columns));
      }
      const std::string name = std::to_string(leaves) + " leaves, " + std::to_string(key_heads);
      ExpectSameBits(Tree(dqueries, GetParam()), Columns(whole, query_columns), name + ", queries");
      ExpectSameBits(Tree(dkeys, GetParam()), Columns(whole, key_columns), name + ", keys");
      ExpectSameBits(Tree(dvalues, GetParam()), Columns(whole, value_columns), name + ", values");
    }
  }
}

// A group's heads, each with one tile of queries: their gradients of keys and values are added in
// order in fp32, and rounded once.
TEST_P(AttentionByLeavesTest, AGroupAddsItsHeadsInOrder) {
  constexpr int64_t kGroup = 3, kGroupWidth = kGroup * kHeadWidth, kTime = 40;
  const Attention attention = {.heads = kGroup,
                               .head_width = kHeadWidth,
                               .dropout = {},
                               .total_heads = kGroup,
                               .key_heads = 1};
  // In fp32, of which 16-bit results are one rounding.
  const auto floats = [&](const Tensor& x) {
    const Tensor wide = kernels_.Empty(x.shape());
    kernels_.Cast(x, wide);
    return wide;
  };
  const Tensor qkv = Normal({2, kTime, attention.packed_width()}, 1),
               dy = Normal({2, kTime, kGroupWidth}, 2);
  const Tensor y = kernels_.Empty(dy.shape()), sums = kernels_.Empty({2, kGroup, kTime}),
               rounded_y = kernels_.EmptyLike(dy), dqkv = kernels_.EmptyLike(qkv);
  kernels_.AttentionForward(attention, floats(qkv), y, sums);
  kernels_.Cast(y, rounded_y);
  kernels_.AttentionBackward(attention, qkv, rounded_y, sums, dy, dqkv);
  Floats expected;
  for (int64_t head = 0; head < kGroup; ++head) {
    const Tensor own_dy = WithZeros(dy, {0, kGroupWidth}, [](int64_t) { return false; });
    for (int64_t other = 0; other < kGroup; ++other) {
      if (other == head) continue;
      const Tensor zeroed =
          WithZeros(own_dy, {other * kHeadWidth, kHeadWidth}, [](int64_t) { return true; });
      kernels_.Copy(zeroed, own_dy);
    }
    const Tensor alone = kernels_.Empty(qkv.shape());
    kernels_.AttentionBackward(attention, floats(qkv), floats(rounded_y), sums, floats(own_dy),
                               alone);
    const Floats own = Columns(alone, {kGroupWidth, 2 * kHeadWidth});
    if (expected.empty()) expected.resize(own.size());
    for (size_t i = 0; i < own.size(); ++i) expected[i] += own[i];
  }
  cpu::RoundFloats(GetParam(), static_cast<int64_t>(expected.size()), expected.data());
  ExpectSameBits(expected, Columns(dqkv, {kGroupWidth, 2 * kHeadWidth}), "keys and values");
}

// Queries of zero: all exponentials are 1, and outputs are sums of values over so many keys. Where
// these are a power of two, the sums can be seen.
TEST_P(AttentionByLeavesTest, OutputsAreTreesOverLeavesOfKeys) {
  if (GetParam() != DType::kF32) return;  // outputs are rounded, the nodes of their tree are not
  for (const int64_t leaves : {2, 4, 8}) {
    const TokenOrder order{.samples = 1, .time = 2 * leaves * 64, .leaves = leaves};
    const Tensor qkv = WithZeros(Normal({leaves, order.leaf_time(), 3 * kWidth}, 1), {0, kWidth},
                                 [](int64_t) { return true; });
    const auto last_output = [&](const Tensor& projections) {
      const Floats y = Download(Forward(Options(0), leaves, projections).y);
      const auto end = y.begin() + order.leaf_time() * kWidth;  // leaf 0 has the last position
      return Floats(end - kWidth, end);
    };
    std::vector<Floats> values;
    for (int64_t leaf = 0; leaf < leaves; ++leaf) {
      values.push_back(last_output(WithZeros(qkv, {2 * kWidth, kWidth}, [&](int64_t row) {
        return row / order.leaf_rows() != leaf;
      })));
    }
    ExpectSameBits(Tree(values, GetParam()), last_output(qkv), std::to_string(leaves) + " leaves");
  }
}

// A head has the same bits alone as among others.
TEST_P(AttentionByLeavesTest, HeadsDoNotDependOnOthers) {
  constexpr int64_t kLeaves = 3, kTime = 2 * 50;  // of a leaf
  Attention attention = Options(0.25f);
  const Shape shape = {2 * kLeaves, kTime, kWidth};
  const Tensor qkv = Normal(shape.With(2, 3 * kWidth), 1), dy = Normal(shape, 2);
  const Sums sums = Forward(attention, kLeaves, qkv);
  const Floats y = Download(sums.y), dqkv = Download(Backward(attention, kLeaves, qkv, sums, dy));
  // One head's columns of rows of `parts` of all heads.
  const auto of_head = [](const Floats& x, int64_t parts, int64_t head) {
    Floats result;
    for (size_t part = 0; part < x.size() / kWidth; ++part) {
      const auto begin = x.begin() + static_cast<int64_t>(part) * kWidth + head * kHeadWidth;
      result.insert(result.end(), begin, begin + kHeadWidth);
    }
    EXPECT_EQ(result.size() % static_cast<size_t>(parts), 0u);
    return result;
  };
  attention.heads = attention.key_heads = 1;
  for (int64_t head = 0; head < kHeads; ++head, ++attention.first_head) {
    const auto upload = [&](const Floats& x, int64_t parts) {
      const Tensor result = kernels_.Empty(shape.With(2, parts * kHeadWidth), GetParam());
      cpu::StoreFloats(of_head(x, parts, head).data(), 0, result.elements(), result);
      return result;
    };
    const Tensor own_qkv = upload(Download(qkv), 3);
    const Sums own = Forward(attention, kLeaves, own_qkv);
    EXPECT_EQ(Download(own.y), of_head(y, 1, head));
    EXPECT_EQ(Download(Backward(attention, kLeaves, own_qkv, own, upload(Download(dy), 1))),
              of_head(dqkv, 3, head));
  }
}

INSTANTIATE_TEST_SUITE_P(DTypes, AttentionByLeavesTest,
                         testing::Values(DType::kF32, DType::kF16, DType::kBF16),
                         [](const auto& param) { return std::string(Name(param.param)); });

}  // namespace
}  // namespace lockstep
