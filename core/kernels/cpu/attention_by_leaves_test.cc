// The order of sums of attention over token leaves: what pairs of leaves give alone, added along
// the tree by its definition, has the bits of the whole call.

#include <algorithm>
#include <bit>
#include <cstdint>
#include <functional>
#include <string>
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

  static Attention Options(float dropout) {
    return {.heads = kHeads,
            .head_width = kHeadWidth,
            .dropout = {.probability = dropout, .key = 3, .counter = 5},
            .total_heads = 5,
            .first_head = 1};
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
  // x with zeros in columns [first, first + kWidth) of all rows for which `zero` holds.
  Tensor WithZeros(const Tensor& x, int64_t first, const std::function<bool(int64_t row)>& zero) {
    Floats values = Download(x);
    const int64_t columns = x.shape()[2];
    for (int64_t row = 0; row < x.elements() / columns; ++row) {
      if (zero(row)) std::fill_n(values.begin() + row * columns + first, kWidth, 0.0f);
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
  // Columns [first, first + kWidth) of all rows of dqkv.
  Floats Columns(const Tensor& dqkv, int64_t first) {
    const Floats all = Download(dqkv);
    Floats result;
    for (size_t row = 0; row < all.size() / (3 * kWidth); ++row) {
      const auto begin = all.begin() + static_cast<int64_t>(row) * 3 * kWidth + first;
      result.insert(result.end(), begin, begin + kWidth);
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
    for (const float dropout : {0.0f, 0.25f}) {
      const TokenOrder order{.samples = 2, .time = 2 * leaves * 53, .leaves = leaves};
      const Attention attention = Options(dropout);
      const Shape shape = {leaves * order.samples, order.leaf_time(), kWidth};
      const Tensor qkv = Normal(shape.With(2, 3 * kWidth), 1), dy = Normal(shape, 2);
      const Sums sums = Forward(attention, leaves, qkv);
      const Tensor whole = Backward(attention, leaves, qkv, sums, dy);
      std::vector<Floats> dqueries, dkeys, dvalues;
      for (int64_t leaf = 0; leaf < leaves; ++leaf) {
        const auto is_other = [&](int64_t row) { return row / order.leaf_rows() != leaf; };
        // Keys of zero get and give nothing; log-sum-exp, y and dy say what softmax needs of them.
        dqueries.push_back(
            Columns(Backward(attention, leaves, WithZeros(qkv, kWidth, is_other), sums, dy), 0));
        // Queries without a gradient give none.
        const Tensor alone = Backward(attention, leaves, qkv, sums, WithZeros(dy, 0, is_other));
        dkeys.push_back(Columns(alone, kWidth));
        dvalues.push_back(Columns(alone, 2 * kWidth));
      }
      const std::string name = std::to_string(leaves) + " leaves";
      ExpectSameBits(Tree(dqueries, GetParam()), Columns(whole, 0), name + ", queries");
      ExpectSameBits(Tree(dkeys, GetParam()), Columns(whole, kWidth), name + ", keys");
      ExpectSameBits(Tree(dvalues, GetParam()), Columns(whole, 2 * kWidth), name + ", values");
    }
  }
}

// Queries of zero: all exponentials are 1, and outputs are sums of values over so many keys. Where
// these are a power of two, the sums can be seen.
TEST_P(AttentionByLeavesTest, OutputsAreTreesOverLeavesOfKeys) {
  if (GetParam() != DType::kF32) return;  // outputs are rounded, the nodes of their tree are not
  for (const int64_t leaves : {2, 4, 8}) {
    const TokenOrder order{.samples = 1, .time = 2 * leaves * 64, .leaves = leaves};
    const Tensor qkv = WithZeros(Normal({leaves, order.leaf_time(), 3 * kWidth}, 1), 0,
                                 [](int64_t) { return true; });
    const auto last_output = [&](const Tensor& projections) {
      const Floats y = Download(Forward(Options(0), leaves, projections).y);
      const auto end = y.begin() + order.leaf_time() * kWidth;  // leaf 0 has the last position
      return Floats(end - kWidth, end);
    };
    std::vector<Floats> values;
    for (int64_t leaf = 0; leaf < leaves; ++leaf) {
      values.push_back(last_output(WithZeros(
          qkv, 2 * kWidth, [&](int64_t row) { return row / order.leaf_rows() != leaf; })));
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
  attention.heads = 1;
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
