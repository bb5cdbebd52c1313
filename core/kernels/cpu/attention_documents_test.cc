// Attention within documents computes nothing with blocks of keys that no query of a tile sees, and
// moves no bit by that.

#include <algorithm>
#include <bit>
#include <cstdint>
#include <limits>
#include <vector>

#include "core/base/philox.h"
#include "core/base/token_order.h"
#include "core/kernels/cpu/cpu_kernels.h"
#include "core/kernels/cpu/float_elements.h"
#include "gtest/gtest.h"

namespace lockstep {
namespace {

using Floats = std::vector<float>;
using Bits = std::vector<uint32_t>;

constexpr int64_t kHeads = 2, kHeadWidth = 72, kWidth = kHeads * kHeadWidth;

struct Case {
  int64_t time, leaves, border;  // where the second document begins
  int64_t key_heads = kHeads;
  float dropout = 0;
};

class AttentionDocumentsTest : public testing::TestWithParam<DType> {
 protected:
  AttentionDocumentsTest() : kernels_(allocator_) {}

  Floats Normal(int64_t elements, uint64_t stream) {
    Floats x(static_cast<size_t>(elements));
    Philox(stream).FillNormal({x.data(), x.size()}, 0, 0, 1);
    return x;
  }
  Tensor Upload(const Shape& shape, Floats elements) {
    const Tensor x = kernels_.Empty(shape), rounded = kernels_.Empty(shape, GetParam());
    kernels_.CopyFromHost(elements.data(), x);
    kernels_.Cast(x, rounded);
    return rounded;
  }

  // Rows of y and of the gradients for which `wanted` holds.
  struct Attended {
    Bits y, dqkv;
  };
  template <typename Wanted>
  Attended Run(const Case& c, const Attention& attention, const Floats& qkv, const Floats& dy,
               const Wanted& wanted) {
    const int64_t samples = c.leaves, rows = c.time / c.leaves;
    const Tensor x = Upload({samples, rows, attention.packed_width()}, qkv);
    const Tensor slopes = Upload({samples, rows, kWidth}, dy);
    const Tensor y = kernels_.EmptyLike(slopes), dqkv = kernels_.EmptyLike(x),
                 sums = kernels_.Empty({samples, kHeads, rows});
    if (c.leaves == 1) {
      kernels_.AttentionForward(attention, x, y, sums);
      kernels_.AttentionBackward(attention, x, y, sums, slopes, dqkv);
    } else {
      kernels_.AttentionForwardByTokenLeaves(attention, c.leaves, x, y, sums);
      kernels_.AttentionBackwardByTokenLeaves(attention, c.leaves, x, y, sums, slopes, dqkv);
    }
    return {BitsOf(y, wanted), BitsOf(dqkv, wanted)};
  }
  template <typename Wanted>
  Bits BitsOf(const Tensor& x, const Wanted& wanted) {
    Floats row(static_cast<size_t>(x.shape()[-1]));
    Bits bits;
    for (int64_t i = 0; i < x.shape().rows(); ++i) {
      if (!wanted(i)) continue;
      cpu::LoadFloats(x, i * x.shape()[-1], x.shape()[-1], row.data());
      for (const float value : row) bits.push_back(std::bit_cast<uint32_t>(value));
    }
    return bits;
  }

  CpuAllocator allocator_;
  CpuKernels kernels_;
};

Attention Options(const Case& c) {
  return {.heads = kHeads,
          .head_width = kHeadWidth,
          .dropout = {.probability = c.dropout, .key = 3, .counter = 5},
          .total_heads = kHeads,
          .key_heads = c.key_heads};
}

// Keys and values that are NaN would make NaN of anything that is computed with them, a product
// with a probability of 0 too. Borders of documents are those of blocks of keys.
TEST_P(AttentionDocumentsTest, NothingIsComputedWithKeysOfOtherDocuments) {
  for (const Case& c :
       {Case{200, 1, 96}, Case{900, 1, 432}, Case{900, 1, 768, 1}, Case{200, 1, 144, 2, 0.25f},
        Case{768, 2, 384}, Case{768, 2, 192, 1}, Case{768, 4, 480, 2, 0.25f}}) {
    SCOPED_TRACE(testing::Message()
                 << c.time << " tokens, " << c.leaves << " leaves, border at " << c.border);
    Attention attention = Options(c);
    std::vector<int32_t> first(static_cast<size_t>(c.time));
    std::fill(first.begin() + c.border, first.end(), static_cast<int32_t>(c.border));
    attention.documents = {first.data(), c.time};
    const TokenOrder order{.samples = 1, .time = c.time, .leaves = c.leaves};
    const auto position = [&](int64_t row) {
      return order.PositionOf(row / order.leaf_time(), row % order.leaf_time());
    };
    const auto is_later = [&](int64_t row) { return position(row) >= c.border; };
    const int64_t width = attention.packed_width();
    const Floats qkv = Normal(c.time * width, 1), dy = Normal(c.time * kWidth, 2);
    Floats spoilt = qkv;
    for (int64_t row = 0; row < c.time; ++row) {
      if (is_later(row)) continue;
      std::fill_n(spoilt.begin() + row * width + kWidth, width - kWidth,
                  std::numeric_limits<float>::quiet_NaN());
    }
    const Attended expected = Run(c, attention, qkv, dy, is_later);
    const Attended actual = Run(c, attention, spoilt, dy, is_later);
    EXPECT_EQ(actual.y, expected.y);
    EXPECT_EQ(actual.dqkv, expected.dqkv);
  }
}

// A document that begins where a chain of multiply-adds does (kInnerBlock) has the bits that it has
// alone.
TEST_P(AttentionDocumentsTest, ADocumentHasTheBitsThatItHasAlone) {
  const Case packed = {1200, 1, 768}, alone = {432, 1, 0};
  Attention attention = Options(packed);
  std::vector<int32_t> first(1200);
  std::fill(first.begin() + 100, first.begin() + 768, 100);
  std::fill(first.begin() + 768, first.end(), 768);
  const int64_t width = attention.packed_width();
  const Floats qkv = Normal(packed.time * width, 1), dy = Normal(packed.time * kWidth, 2);
  const Attended expected =
      Run(alone, attention, Floats(qkv.begin() + 768 * width, qkv.end()),
          Floats(dy.begin() + 768 * kWidth, dy.end()), [](int64_t) { return true; });
  attention.documents = {first.data(), packed.time};
  const Attended actual = Run(packed, attention, qkv, dy, [](int64_t row) { return row >= 768; });
  EXPECT_EQ(actual.y, expected.y);
  EXPECT_EQ(actual.dqkv, expected.dqkv);
}

INSTANTIATE_TEST_SUITE_P(DTypes, AttentionDocumentsTest, testing::Values(DType::kF32, DType::kBF16),
                         [](const auto& test) { return Name(test.param); });

}  // namespace
}  // namespace lockstep
