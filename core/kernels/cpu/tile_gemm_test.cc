#include "core/kernels/cpu/tile_gemm.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <random>
#include <string>
#include <vector>

#include "gtest/gtest.h"

namespace lockstep::cpu {
namespace {

constexpr float kGuard = 1e30f;  // stands around every operand and must stay

// A row-major matrix with guards between its rows, before and behind it. With kReadOnly nothing
// follows the last element, so that ASan sees a read beyond it.
enum class Access { kReadOnly, kReadWrite };
struct Matrix {
  Matrix(int64_t rows, int64_t columns, int64_t gap, Access access = Access::kReadOnly)
      : rows(rows),
        columns(columns),
        stride(columns + gap),
        data(16 + rows * stride + (access == Access::kReadOnly ? -gap : 64), kGuard) {}

  template <typename Random>
  Matrix& Fill(Random& random) {
    std::uniform_real_distribution<float> value(-1, 1);
    for (int64_t i = 0; i < rows; ++i) {
      for (int64_t j = 0; j < columns; ++j) at(i, j) = value(random);
    }
    return *this;
  }
  float* begin() { return data.data() + 16; }
  float& at(int64_t i, int64_t j) { return begin()[i * stride + j]; }
  bool GuardsStand() const {
    for (int64_t i = 0; i < static_cast<int64_t>(data.size()); ++i) {
      const int64_t at = i - 16;
      const bool inside = at >= 0 && at < rows * stride && at % stride < columns;
      if (!inside && data[i] != kGuard) return false;
    }
    return true;
  }

  int64_t rows, columns, stride;
  std::vector<float> data;
};

struct Case {
  int64_t m, n, k;
  bool left_transposed, right_transposed, bias;
  enum Addend { kNone, kSelf, kOther } addend;
};

class TileGemmTest : public testing::TestWithParam<InstructionSet> {
 protected:
  void SetUp() override {
    if (GetParam() == InstructionSet::kAvx512) instructions_ = WidestInstructionSet();
  }

  // Packs and multiplies; c as it comes out.
  void Run(Matrix& a, bool left_transposed, Matrix& b, bool right_transposed, const float* bias,
           const float* addend, int64_t addend_stride, Matrix& c) {
    const int64_t k = left_transposed ? a.rows : a.columns;
    // Exactly as large as promised, so that ASan sees what goes beyond; NaN shows what is not
    // written.
    std::vector<float> packed_b(PackedRightSize(k, c.columns), NAN), packed_a;
    PackRight({b.begin(), b.stride, right_transposed ? Transpose::kYes : Transpose::kNo}, k,
              c.columns, packed_b.data());
    TileProduct product = {.m = c.rows,
                           .n = c.columns,
                           .k = k,
                           .a = a.begin(),
                           .a_stride = a.stride,
                           .packed_b = packed_b.data(),
                           .c = c.begin(),
                           .c_stride = c.stride,
                           .bias = bias,
                           .addends = {&addend, addend != nullptr ? size_t{1} : size_t{0}},
                           .addend_stride = addend_stride};
    if (left_transposed) {
      packed_a.assign(PackedLeftSize(c.rows, k), NAN);
      PackLeftTransposed(a.begin(), a.stride, c.rows, k, packed_a.data());
      product.a = packed_a.data();
      product.a_stride = 0;
    }
    Multiply(product, instructions_);
  }

  void Check(const Case& t, uint64_t seed) {
    SCOPED_TRACE("m " + std::to_string(t.m) + " n " + std::to_string(t.n) + " k " +
                 std::to_string(t.k) + " left " + std::to_string(t.left_transposed) + " right " +
                 std::to_string(t.right_transposed) + " bias " + std::to_string(t.bias) +
                 " addend " + std::to_string(t.addend));
    std::mt19937_64 random(seed);
    Matrix a = t.left_transposed ? Matrix(t.k, t.m, 3) : Matrix(t.m, t.k, 5);
    Matrix b = t.right_transposed ? Matrix(t.n, t.k, 1) : Matrix(t.k, t.n, 7);
    Matrix c(t.m, t.n, 4, Access::kReadWrite), other(t.m, t.n, 2), bias(1, t.n, 0);
    for (Matrix* matrix : {&a, &b, &c, &other, &bias}) matrix->Fill(random);
    Matrix before = c;
    Matrix* addend = t.addend == Case::kNone ? nullptr : t.addend == Case::kSelf ? &c : &other;
    Run(a, t.left_transposed, b, t.right_transposed, t.bias ? bias.begin() : nullptr,
        addend == nullptr ? nullptr : addend->begin(), addend == nullptr ? 0 : addend->stride, c);
    for (int64_t i = 0; i < t.m; ++i) {
      for (int64_t j = 0; j < t.n; ++j) {
        double sum = 0, magnitude = 1;
        for (int64_t p = 0; p < t.k; ++p) {
          const double term = static_cast<double>(t.left_transposed ? a.at(p, i) : a.at(i, p)) *
                              (t.right_transposed ? b.at(j, p) : b.at(p, j));
          sum += term;
          magnitude += std::abs(term);
        }
        if (t.bias) sum += bias.at(0, j);
        if (t.addend == Case::kSelf) sum += before.at(i, j);
        if (t.addend == Case::kOther) sum += other.at(i, j);
        // Rounding errors of a chain wander: a few units of the sum of magnitudes, not k of them.
        ASSERT_NEAR(c.at(i, j), sum, 4e-7 * magnitude) << i << ", " << j;
      }
    }
    for (Matrix* matrix : {&a, &b, &c, &other, &bias}) EXPECT_TRUE(matrix->GuardsStand());
  }

  InstructionSet instructions_ = InstructionSet::kAvx2;
};

TEST_P(TileGemmTest, EverySmallSizeOfEachExtent) {
  uint64_t seed = 0;
  for (int64_t size = 1; size <= 100; ++size) {
    const bool odd = size % 2 == 1;
    Check({size, 17, 9, odd, !odd, odd, Case::kNone}, ++seed);
    Check({5, size, 70, !odd, odd, !odd, Case::kSelf}, ++seed);
    Check({11, 33, size, odd, odd, true, Case::kOther}, ++seed);
  }
}

TEST_P(TileGemmTest, RandomSmallSizes) {
  std::mt19937_64 random(7);
  const auto upto = [&random](int64_t n) { return static_cast<int64_t>(random() % n); };
  for (int i = 0; i < 400; ++i) {
    Check({1 + upto(40), 1 + upto(40), 1 + upto(40), upto(2) == 1, upto(2) == 1, upto(2) == 1,
           static_cast<Case::Addend>(upto(3))},
          random());
  }
}

TEST_P(TileGemmTest, SizesOfRealLayers) {
  Check({128, 384, 384, false, true, true, Case::kNone}, 1);
  Check({128, 65, 384, false, true, true, Case::kOther}, 2);
  Check({96, 100, 1536, false, false, false, Case::kNone}, 3);
  Check({100, 384, 1000, false, false, true, Case::kSelf}, 4);
  Check({384, 384, 128, true, false, false, Case::kSelf}, 5);
  Check({384, 130, 77, true, false, false, Case::kNone}, 6);
  Check({512, 64, 512, true, true, false, Case::kNone}, 7);  // strides of a power of two, and gaps
}

// The product is one chain of std::fma for each 384 steps: whatever computes it must give these
// bits.
TEST_P(TileGemmTest, BitsAreThoseOfTheDefinition) {
  std::mt19937_64 random(3);
  const int64_t m = 21, n = 83, k = 1000;
  Matrix a(m, k, 0), b(k, n, 0), c(m, n, 0);
  Run(a.Fill(random), false, b.Fill(random), false, nullptr, nullptr, 0, c);
  for (int64_t i = 0; i < m; ++i) {
    for (int64_t j = 0; j < n; ++j) {
      float total = 0;
      for (int64_t first = 0; first < k; first += 384) {
        float sum = 0;
        for (int64_t p = first; p < std::min<int64_t>(first + 384, k); ++p) {
          sum = std::fma(a.at(i, p), b.at(p, j), sum);
        }
        total = first == 0 ? sum : sum + total;
      }
      ASSERT_EQ(c.at(i, j), total) << i << ", " << j;
    }
  }
}

TEST_P(TileGemmTest, BitsDoNotDependOnTheTile) {
  std::mt19937_64 random(5);
  Matrix a(64, 200, 0), b(200, 150, 0), whole(64, 150, 0);
  a.Fill(random), b.Fill(random);
  Run(a, false, b, false, nullptr, nullptr, 0, whole);
  for (int64_t first = 1; first < 60; first += 13) {
    Matrix rows(4, 200, 0), columns(200, 19, 0), part(4, 19, 0);
    for (int64_t p = 0; p < 200; ++p) {
      for (int64_t i = 0; i < 4; ++i) rows.at(i, p) = a.at(first + i, p);
      for (int64_t j = 0; j < 19; ++j) columns.at(p, j) = b.at(p, 2 * first + j);
    }
    Run(rows, false, columns, false, nullptr, nullptr, 0, part);
    for (int64_t i = 0; i < 4; ++i) {
      for (int64_t j = 0; j < 19; ++j) ASSERT_EQ(part.at(i, j), whole.at(first + i, 2 * first + j));
    }
  }
}

// Leaves that are added up in cache have the bits of the tree over products made one by one.
TEST_P(TileGemmTest, LeavesAreAddedAsATree) {
  std::mt19937_64 random(11);
  for (const auto& [m, n, k] : {std::array<int64_t, 3>{8, 48, 128}, {21, 83, 128}, {50, 20, 7}}) {
    for (int leaves = 2; leaves <= kLeafGroup; leaves *= 2) {
      Matrix a(leaves * k, m, 3), b(leaves * k, n, 1);  // a leaf's rows after the other's
      Matrix sums(m, n, 4, Access::kReadWrite), addend(m, n, 4);
      for (Matrix* matrix : {&a, &b, &sums, &addend}) matrix->Fill(random);
      std::vector<Matrix> products(leaves, Matrix(m, n, 0));
      const int64_t left = PackedLeftSize(m, k), right = PackedRightSize(k, n);
      std::vector<float> packed_a(leaves * left, NAN), packed_b(leaves * right, NAN);
      TileProduct product = {
          .m = m, .n = n, .k = k, .a = nullptr, .packed_b = nullptr, .c = nullptr, .c_stride = n};
      for (int leaf = 0; leaf < leaves; ++leaf) {
        PackLeftTransposed(&a.at(leaf * k, 0), a.stride, m, k, &packed_a[leaf * left]);
        PackRight({&b.at(leaf * k, 0), b.stride}, k, n, &packed_b[leaf * right]);
        product.a = &packed_a[leaf * left];
        product.packed_b = &packed_b[leaf * right];
        product.c = products[leaf].begin();
        Multiply(product, instructions_);
      }
      const float* const addends[] = {addend.begin()};
      product.leaves = leaves;
      product.a = packed_a.data();
      product.packed_b = packed_b.data();
      product.c = sums.begin();
      product.c_stride = sums.stride;
      product.addends = addends;
      product.addend_stride = addend.stride;
      Multiply(product, instructions_);
      for (int64_t i = 0; i < m; ++i) {
        for (int64_t j = 0; j < n; ++j) {
          std::vector<float> tree;
          for (Matrix& leaf : products) tree.push_back(leaf.at(i, j));
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

TEST(TileGemmPanelsTest, APanelRangeIsPackedAlone) {
  std::mt19937_64 random(9);
  const int64_t k = 37, n = 200;
  Matrix b(k, n, 0);
  b.Fill(random);
  std::vector<float> whole(PackedRightSize(k, n), NAN), parts = whole;
  PackRight({b.begin(), b.stride}, k, n, whole.data());
  for (int64_t panel = RightPanels(n) - 1; panel >= 0; --panel) {
    PackRight({b.begin(), b.stride}, k, n, panel, panel + 1, parts.data());
  }
  EXPECT_EQ(whole, parts);
}

INSTANTIATE_TEST_SUITE_P(Instructions, TileGemmTest,
                         testing::Values(InstructionSet::kAvx2, InstructionSet::kAvx512),
                         [](const auto& test) {
                           return test.param == InstructionSet::kAvx2 ? "avx2" : "widest";
                         });

}  // namespace
}  // namespace lockstep::cpu
