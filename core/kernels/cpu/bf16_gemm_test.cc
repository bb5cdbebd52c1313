#include "core/kernels/cpu/bf16_gemm.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <random>
#include <string>
#include <type_traits>
#include <vector>

#include "core/base/half.h"
#include "core/kernels/cpu/tile_gemm.h"  // RightPanels
#include "gtest/gtest.h"

namespace lockstep::cpu {
namespace {

// Elements that stand around every operand and must stay. As a factor, NaN shows where one is read.
constexpr Bf16 kGuard = 0x7fc1;
const float kFloatGuard = BFloat16ToFloat(kGuard);

// A row-major matrix with guards between its rows, before and behind it. With kReadOnly nothing
// follows the last element, so that ASan sees a read beyond it.
enum class Access { kReadOnly, kReadWrite };
template <typename T>
struct Matrix {
  Matrix(int64_t rows, int64_t columns, int64_t gap, Access access = Access::kReadOnly)
      : rows(rows),
        columns(columns),
        stride(columns + gap),
        data(32 + rows * stride + (access == Access::kReadOnly ? -gap : 64), Guard()) {}

  static T Guard() {
    if constexpr (std::is_same_v<T, float>) return kFloatGuard;
    return kGuard;
  }
  template <typename Random>
  Matrix& Fill(Random& random) {
    std::uniform_real_distribution<float> value(-1, 1);
    for (int64_t i = 0; i < rows; ++i) {
      for (int64_t j = 0; j < columns; ++j) {
        if constexpr (std::is_same_v<T, float>) {
          at(i, j) = value(random);
        } else {
          at(i, j) = FloatToBFloat16(value(random));
        }
      }
    }
    return *this;
  }
  T* begin() { return data.data() + 32; }
  T& at(int64_t i, int64_t j) { return begin()[i * stride + j]; }
  float Value(int64_t i, int64_t j) {
    if constexpr (std::is_same_v<T, float>) return at(i, j);
    return BFloat16ToFloat(at(i, j));
  }
  bool GuardsStand() const {
    const T guard = Guard();
    for (int64_t i = 0; i < static_cast<int64_t>(data.size()); ++i) {
      const int64_t at = i - 32;
      const bool inside = at >= 0 && at < rows * stride && at % stride < columns;
      if (!inside && std::memcmp(&data[i], &guard, sizeof(T)) != 0) return false;
    }
    return true;
  }

  int64_t rows, columns, stride;
  std::vector<T> data;
};

// The definition of an element: one chain of std::fma over k, of each pair the second first.
float Chain(Matrix<Bf16>& a, bool left_transposed, Matrix<Bf16>& b, bool right_transposed,
            int64_t i, int64_t j, int64_t k, float start = 0) {
  float sum = start;
  for (int64_t pair = 0; pair < k; pair += 2) {
    for (const int64_t p : {pair + 1, pair}) {
      if (p == k) continue;
      sum = std::fma(left_transposed ? a.Value(p, i) : a.Value(i, p),
                     right_transposed ? b.Value(j, p) : b.Value(p, j), sum);
    }
  }
  return sum;
}

struct Case {
  int64_t m, n, k;
  bool left_transposed, right_transposed, bias, residual, start;
  int addends;  // the first of them is c, if c is fp32
};

class Bf16GemmTest : public testing::Test {
 protected:
  void SetUp() override {
    if (!HasBf16Instructions()) GTEST_SKIP() << "this processor has no AVX512-BF16";
  }

  // Packs the operands and multiplies; what `product` lacks of a, b and the extents is added.
  static void Run(Matrix<Bf16>& a, bool left_transposed, Matrix<Bf16>& b, bool right_transposed,
                  Bf16Product product) {
    const int64_t k = left_transposed ? a.rows : a.columns;
    product.k = k;
    product.m = left_transposed ? a.columns : a.rows;
    product.n = right_transposed ? b.rows : b.columns;
    // Exactly as large as promised, so that ASan sees what goes beyond; NaN shows what is not
    // written.
    std::vector<Bf16> packed_b(PackedBf16RightSize(k, product.n), kGuard), packed_a;
    PackBf16Right({b.begin(), b.stride, right_transposed ? Transpose::kYes : Transpose::kNo}, k,
                  product.n, packed_b.data());
    product.packed_b = packed_b.data();
    product.a = a.begin();
    product.a_stride = a.stride;
    if (left_transposed) {
      packed_a.assign(PackedBf16LeftSize(product.m, k), kGuard);
      PackBf16LeftTransposed(a.begin(), a.stride, product.m, k, packed_a.data());
      product.a = packed_a.data();
      product.a_stride = 0;
    }
    MultiplyBf16(product);
  }

  // Every element has the bits of the definition, and is near the sum in double precision.
  static void Check(const Case& t, uint64_t seed) {
    SCOPED_TRACE("m " + std::to_string(t.m) + " n " + std::to_string(t.n) + " k " +
                 std::to_string(t.k) + " left " + std::to_string(t.left_transposed) + " right " +
                 std::to_string(t.right_transposed) + " bias " + std::to_string(t.bias) +
                 " residual " + std::to_string(t.residual) + " start " + std::to_string(t.start) +
                 " addends " + std::to_string(t.addends));
    std::mt19937_64 random(seed);
    Matrix<Bf16> a = t.left_transposed ? Matrix<Bf16>(t.k, t.m, 3) : Matrix<Bf16>(t.m, t.k, 5);
    Matrix<Bf16> b = t.right_transposed ? Matrix<Bf16>(t.n, t.k, 1) : Matrix<Bf16>(t.k, t.n, 7);
    Matrix<Bf16> residual(t.m, t.n, 2), rounded(t.m, t.n, 9, Access::kReadWrite);
    Matrix<float> bias(1, t.n, 0), start(t.m, t.n, 6), c(t.m, t.n, 4, Access::kReadWrite);
    std::vector<Matrix<float>> addends(t.addends, Matrix<float>(t.m, t.n, 4));
    for (auto* matrix : {&a, &b, &residual}) matrix->Fill(random);
    for (auto* matrix : {&bias, &start, &c}) matrix->Fill(random);
    std::vector<const float*> pointers;
    for (Matrix<float>& addend : addends) pointers.push_back(addend.Fill(random).begin());
    if (t.addends > 0) {
      pointers[0] = c.begin();
      addends[0] = c;
    }
    Bf16Product product = {.c_stride = rounded.stride,
                           .start = t.start ? start.begin() : nullptr,
                           .start_stride = start.stride,
                           .addends = pointers,
                           .addend_stride = c.stride,
                           .bias = t.bias ? bias.begin() : nullptr,
                           .residual = t.residual ? residual.begin() : nullptr,
                           .residual_stride = residual.stride};
    // bf16 first: fp32 overwrites c, which is an addend.
    product.c_bf16 = rounded.begin();
    Run(a, t.left_transposed, b, t.right_transposed, product);
    product.c_bf16 = nullptr;
    product.c = c.begin();
    product.c_stride = c.stride;
    Run(a, t.left_transposed, b, t.right_transposed, product);
    for (int64_t i = 0; i < t.m; ++i) {
      for (int64_t j = 0; j < t.n; ++j) {
        const float first = t.start ? start.at(i, j) : 0;
        double exact = first, magnitude = 1;
        for (int64_t p = 0; p < t.k; ++p) {
          const double term =
              static_cast<double>(t.left_transposed ? a.Value(p, i) : a.Value(i, p)) *
              (t.right_transposed ? b.Value(j, p) : b.Value(p, j));
          exact += term;
          magnitude += std::abs(term);
        }
        float expected = Chain(a, t.left_transposed, b, t.right_transposed, i, j, t.k, first);
        const auto add = [&](float more) {
          expected += more;
          exact += more;
          magnitude += std::abs(more);
        };
        for (Matrix<float>& addend : addends) add(addend.at(i, j));
        if (t.bias) add(bias.at(0, j));
        if (t.residual) add(residual.Value(i, j));
        ASSERT_EQ(c.at(i, j), expected) << i << ", " << j;
        ASSERT_EQ(rounded.at(i, j), FloatToBFloat16(expected)) << i << ", " << j;
        // Rounding errors of a chain wander: a few units of the sum of magnitudes, not k of them.
        ASSERT_NEAR(expected, exact, 8e-7 * magnitude) << i << ", " << j;
      }
    }
    for (auto* matrix : {&a, &b, &residual, &rounded}) EXPECT_TRUE(matrix->GuardsStand());
    for (auto* matrix : {&bias, &start, &c}) EXPECT_TRUE(matrix->GuardsStand());
  }
};

TEST_F(Bf16GemmTest, EverySmallSizeOfEachExtent) {
  uint64_t seed = 0;
  for (int64_t size = 1; size <= 130; ++size) {
    const bool odd = size % 2 == 1, third = size % 3 == 0;
    Check({size, 17, 9, odd, !odd, odd, third, !third, 0}, ++seed);
    Check({size, 17, 10, !odd, odd, third, odd, third, 1}, ++seed);
    Check({5, size, 70, !odd, odd, !odd, third, third, 2}, ++seed);
    Check({19, size, 11, odd, third, !odd, !third, odd, 0}, ++seed);
    Check({11, 33, size, odd, third, true, !third, third, 3}, ++seed);
    Check({8, 48, size, third, odd, third, third, !odd, 1}, ++seed);
  }
}

TEST_F(Bf16GemmTest, RandomSmallSizes) {
  std::mt19937_64 random(7);
  const auto upto = [&random](int64_t n) { return static_cast<int64_t>(random() % n); };
  for (int i = 0; i < 400; ++i) {
    Check({1 + upto(60), 1 + upto(60), 1 + upto(60), upto(2) == 1, upto(2) == 1, upto(2) == 1,
           upto(2) == 1, upto(2) == 1, static_cast<int>(upto(4))},
          random());
  }
}

// Real layers, chains that outgrow a block of k, and more rows than share a scratch.
TEST_F(Bf16GemmTest, SizesOfRealLayers) {
  Check({128, 384, 384, false, true, true, true, false, 0}, 1);
  Check({128, 65, 384, false, true, true, false, false, 0}, 2);
  Check({96, 100, 1536, false, false, false, false, true, 0}, 3);
  Check({384, 384, 128, true, false, false, false, false, 2}, 4);
  Check({384, 130, 77, true, false, false, false, false, 1}, 5);
  Check({20, 100, 5001, false, false, true, true, false, 1}, 6);
  Check({20, 70, 4097, true, true, false, true, true, 0}, 7);
  Check({300, 50, 2500, false, false, true, true, true, 1}, 8);
  Check({260, 50, 2049, true, false, false, false, false, 1}, 9);
}

TEST_F(Bf16GemmTest, BitsDoNotDependOnTheTile) {
  std::mt19937_64 random(5);
  Matrix<Bf16> a(64, 200, 0), b(200, 150, 0);
  Matrix<float> whole(64, 150, 0);
  a.Fill(random), b.Fill(random);
  Run(a, false, b, false, {.c = whole.begin(), .c_stride = 150});
  for (int64_t first = 1; first < 60; first += 13) {
    Matrix<Bf16> rows(4, 200, 0), columns(200, 19, 0);
    Matrix<float> part(4, 19, 0);
    for (int64_t p = 0; p < 200; ++p) {
      for (int64_t i = 0; i < 4; ++i) rows.at(i, p) = a.at(first + i, p);
      for (int64_t j = 0; j < 19; ++j) columns.at(p, j) = b.at(p, 2 * first + j);
    }
    Run(rows, false, columns, false, {.c = part.begin(), .c_stride = 19});
    for (int64_t i = 0; i < 4; ++i) {
      for (int64_t j = 0; j < 19; ++j) ASSERT_EQ(part.at(i, j), whole.at(first + i, 2 * first + j));
    }
  }
}

// A chain that goes on in another call is the chain of one call.
TEST_F(Bf16GemmTest, ChainsGoOn) {
  std::mt19937_64 random(6);
  const int64_t m = 30, n = 70, k = 101;
  Matrix<Bf16> a(m, k, 0), b(k, n, 0);
  Matrix<float> whole(m, n, 0), sum(m, n, 0);
  a.Fill(random), b.Fill(random);
  Run(a, false, b, false, {.c = whole.begin(), .c_stride = n});
  for (const int64_t first : {int64_t{0}, int64_t{38}, int64_t{90}}) {
    const int64_t end = first == 0 ? 38 : first == 38 ? 90 : k;
    std::vector<Bf16> packed(PackedBf16RightSize(end - first, n));
    PackBf16Right({b.begin() + first * n, n}, end - first, n, packed.data());
    MultiplyBf16({.m = m,
                  .n = n,
                  .k = end - first,
                  .a = a.begin() + first,
                  .a_stride = k,
                  .packed_b = packed.data(),
                  .c = sum.begin(),
                  .c_stride = n,
                  .start = first == 0 ? nullptr : sum.begin(),
                  .start_stride = n});
  }
  for (int64_t i = 0; i < m; ++i) {
    for (int64_t j = 0; j < n; ++j) ASSERT_EQ(sum.at(i, j), whole.at(i, j)) << i << ", " << j;
  }
}

// The microkernel rounds with code of its own.
TEST_F(Bf16GemmTest, RoundsAsFloatToBFloat16) {
  std::vector<float> values = {0.0f,      -0.0f,          1e-40f,      0x1.01p0f,
                               0x1.03p0f, 0x1.0100002p0f, 0x1.ffp127f, -0x1.fffffep127f};
  values.push_back(std::numeric_limits<float>::infinity());
  values.push_back(std::numeric_limits<float>::quiet_NaN());
  std::mt19937_64 random(8);
  while (values.size() < 1000) {
    values.push_back(std::bit_cast<float>(static_cast<uint32_t>(random())));
  }
  const auto n = static_cast<int64_t>(values.size());
  Matrix<Bf16> a(1, 1, 0), b(1, n, 0), c(1, n, 0);
  a.at(0, 0) = 0;
  std::fill_n(b.begin(), n, Bf16{0});
  Run(a, false, b, false, {.c_bf16 = c.begin(), .c_stride = n, .bias = values.data()});
  for (int64_t j = 0; j < n; ++j) {
    ASSERT_EQ(c.at(0, j), FloatToBFloat16(0.0f + values[j])) << values[j];
  }
}

// Leaves that are added up in cache have the bits of the tree over products made one by one.
TEST_F(Bf16GemmTest, LeavesAreAddedAsATree) {
  std::mt19937_64 random(11);
  for (const auto& [m, n, k] : {std::array<int64_t, 3>{8, 48, 128}, {21, 83, 128}, {50, 20, 7}}) {
    for (int leaves = 2; leaves <= kLeafGroup; leaves *= 2) {
      Matrix<Bf16> a(leaves * k, m, 3), b(leaves * k, n, 1);  // a leaf's rows after the other's
      Matrix<float> sums(m, n, 4, Access::kReadWrite), addend(m, n, 4);
      a.Fill(random), b.Fill(random), sums.Fill(random), addend.Fill(random);
      std::vector<Matrix<float>> products(leaves, Matrix<float>(m, n, 0));
      const int64_t left = PackedBf16LeftSize(m, k), right = PackedBf16RightSize(k, n);
      std::vector<Bf16> packed_a(leaves * left, kGuard), packed_b(leaves * right, kGuard);
      const float* const addends[] = {addend.begin()};
      Bf16Product product = {.m = m, .n = n, .k = k, .c_stride = n};
      for (int leaf = 0; leaf < leaves; ++leaf) {
        PackBf16LeftTransposed(&a.at(leaf * k, 0), a.stride, m, k, &packed_a[leaf * left]);
        PackBf16Right({&b.at(leaf * k, 0), b.stride}, k, n, &packed_b[leaf * right]);
        product.a = &packed_a[leaf * left];
        product.packed_b = &packed_b[leaf * right];
        product.c = products[leaf].begin();
        MultiplyBf16(product);
      }
      product = {.m = m,
                 .n = n,
                 .k = k,
                 .leaves = leaves,
                 .a = packed_a.data(),
                 .packed_b = packed_b.data(),
                 .c = sums.begin(),
                 .c_stride = sums.stride,
                 .addends = addends,
                 .addend_stride = addend.stride};
      MultiplyBf16(product);
      for (int64_t i = 0; i < m; ++i) {
        for (int64_t j = 0; j < n; ++j) {
          std::vector<float> tree;
          for (Matrix<float>& leaf : products) tree.push_back(leaf.at(i, j));
          while (tree.size() > 1) {
            for (size_t t = 0; t < tree.size() / 2; ++t) tree[t] = tree[2 * t] + tree[2 * t + 1];
            tree.resize(tree.size() / 2);
          }
          ASSERT_EQ(sums.at(i, j), tree[0] + addend.at(i, j)) << leaves << ": " << i << ", " << j;
        }
      }
      EXPECT_TRUE(sums.GuardsStand());
    }
  }
}

TEST_F(Bf16GemmTest, APanelRangeStandsAlone) {
  std::mt19937_64 random(9);
  const int64_t k = 37, n = 200, m = 13;
  Matrix<Bf16> a(m, k, 0), b(k, n, 0);
  Matrix<float> c(m, n, 0), parts(m, n, 0);
  a.Fill(random), b.Fill(random);
  std::vector<Bf16> whole(PackedBf16RightSize(k, n), kGuard), packed = whole;
  PackBf16Right({b.begin(), b.stride}, k, n, whole.data());
  Bf16Product product = {.m = m,
                         .n = n,
                         .k = k,
                         .a = a.begin(),
                         .a_stride = k,
                         .packed_b = packed.data(),
                         .c = parts.begin(),
                         .c_stride = n};
  for (int64_t panel = RightPanels(n) - 1; panel >= 0; --panel) {
    PackBf16Right({b.begin(), b.stride}, k, n, panel, panel + 1, packed.data());
    MultiplyBf16Panels(product, panel, panel + 1);
  }
  EXPECT_EQ(whole, packed);
  product.c = c.begin();
  MultiplyBf16(product);
  for (int64_t i = 0; i < m; ++i) {
    for (int64_t j = 0; j < n; ++j) ASSERT_EQ(c.at(i, j), parts.at(i, j)) << i << ", " << j;
  }
}

}  // namespace
}  // namespace lockstep::cpu
