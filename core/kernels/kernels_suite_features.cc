// Sums over feature leaves: the bits of the kernels without leaves on slices, added along the tree,
// each node rounded.

#include <algorithm>
#include <cstdint>
#include <functional>
#include <vector>

#include "core/kernels/feature_leaves.h"
#include "core/kernels/kernels_suite.h"

namespace lockstep {
namespace {

struct Case {
  int64_t rows;
  FeatureLeaves leaves;
  int64_t features;  // some may be in no leaf
  int64_t width;     // of the other side
};

// Leaves longer than a block of a product's chain and shorter ones; packed projections; numbers
// that are no power of two; leaves without features; padding; rows of one leaf and of many.
std::vector<Case> Cases() {
  return {{5, {{{0, 7}}, {{7, 7}}}, 14, 19},
          {300, {{{0, 410}}, {{410, 410}}}, 820, 50},
          {512, {{{0, 96}}, {{96, 96}}, {{192, 96}}, {{288, 96}}}, 384, 96},
          {640, {{{0, 400}}, {{400, 400}}, {{800, 400}}, {{1200, 400}}}, 1600, 64},
          {300, {{{0, 31}}, {{31, 31}}, {{62, 30}}}, 92, 130},
          {260, {{{0, 9}}, {{9, 9}}, {{18, 9}}, {{27, 9}}, {{36, 9}}, {{45, 9}}}, 54, 33},
          {140,
           {{{0, 100}, {400, 100}, {800, 100}},
            {{100, 100}, {500, 100}, {900, 100}},
            {{200, 100}, {600, 100}, {1000, 100}},
            {{300, 100}, {700, 100}, {1100, 100}}},
           1200,
           60},
          {130, {{{0, 12}}, {{12, 12}}, {{24, 3}}, {{27, 0}}}, 32, 40},
          {20, {{{0, 0}}, {{0, 0}}}, 8, 16}};
}

// The tree over leaves [first, first + count), by its definition: it splits at the largest power of
// two below count.
std::vector<float> Tree(const std::vector<std::vector<float>>& leaves, size_t first, size_t count,
                        DType dtype) {
  if (count == 1) return leaves[first];
  size_t split = 1;
  while (2 * split < count) split *= 2;
  std::vector<float> sum = Tree(leaves, first, split, dtype);
  const std::vector<float> right = Tree(leaves, first + split, count - split, dtype);
  for (size_t i = 0; i < sum.size(); ++i) sum[i] = Rounded(sum[i] + right[i], dtype);
  return sum;
}

// What make(leaf) gives, added along the tree. Leaves without features are -0.0.
using Make = std::function<std::vector<float>(const std::vector<Range>& leaf)>;
std::vector<float> SumOf(const FeatureLeaves& leaves, int64_t elements, DType dtype,
                         const Make& make) {
  std::vector<std::vector<float>> values;
  for (const std::vector<Range>& leaf : leaves) {
    values.push_back(FeaturesOf(leaf) > 0
                         ? make(leaf)
                         : std::vector<float>(static_cast<size_t>(elements), -0.0f));
  }
  return Tree(values, 0, values.size(), dtype);
}

// All features of a case, for the reference: zero where no leaf has them.
reference::Array Used(const reference::Array& x, const FeatureLeaves& leaves) {
  reference::Array used(x.shape);
  const int64_t width = x.shape[-1];
  for (int64_t row = 0; row < x.shape.rows(); ++row) {
    for (const std::vector<Range>& leaf : leaves) {
      for (const Range& range : leaf) {
        for (int64_t i = range.first; i < range.first + range.count; ++i) {
          used.value[row * width + i] = x[row * width + i];
        }
      }
    }
  }
  return used;
}

TEST_P(KernelsSuite, LinearByLeaves) {
  for (const Case& c : Cases()) {
    SCOPED_TRACE(testing::Message() << c.rows << ", " << c.leaves.size() << " of " << c.features);
    const Input x = Normal({c.rows, c.features}), w = Normal({c.width, c.features});
    Tensor y = Output({c.rows, c.width});
    kernels().LinearByLeaves(x.tensor, w.tensor, c.leaves, y);
    const Make leaf = [&](const std::vector<Range>& own) {
      const Tensor output = Output(y.shape());
      kernels().Linear(TakeColumns(kernels(), x.tensor, own), TakeColumns(kernels(), w.tensor, own),
                       Tensor(), Tensor(), output);
      return Download(output);
    };
    EXPECT_TRUE(SameBits(SumOf(c.leaves, y.elements(), dtype(), leaf), Download(y)));
    EXPECT_TRUE(Agrees(reference::Linear(Used(x, c.leaves), w, {}, {}), y,
                       SumRoundings(c.features) + 3, 3));
  }
}

TEST_P(KernelsSuite, LinearBackwardByLeaves) {
  for (const Case& c : Cases()) {
    SCOPED_TRACE(testing::Message() << c.rows << ", " << c.leaves.size() << " of " << c.features);
    const Input dy = Normal({c.rows, c.features}), x = Normal({c.rows, c.width}),
                w = Normal({c.features, c.width}), bias = Normal({c.features});
    for (const GradientMode& mode : GradientModes()) {
      const Tensor dx = Output(x.shape), dw = Target(mode, w), dbias = Target(mode, bias);
      kernels().LinearBackwardByLeaves(dy.tensor, x.tensor, w.tensor, c.leaves, mode.write, dx, dw,
                                       dbias);
      const Make leaf = [&](const std::vector<Range>& own) {
        const Tensor output = Output(x.shape);
        kernels().LinearBackward(TakeColumns(kernels(), dy.tensor, own), Tensor(),
                                 TakeRows(kernels(), w.tensor, own), Write::kOverwrite, output,
                                 Tensor(), Tensor());
        return Download(output);
      };
      EXPECT_TRUE(SameBits(SumOf(c.leaves, dx.elements(), dtype(), leaf), Download(dx)));
      const Tensor plain_dw = Target(mode, w), plain_dbias = Target(mode, bias);
      kernels().LinearBackward(dy.tensor, x.tensor, w.tensor, mode.write, Tensor(), plain_dw,
                               plain_dbias);
      EXPECT_TRUE(SameBits(dw, plain_dw));
      EXPECT_TRUE(SameBits(dbias, plain_dbias));
    }
    const Tensor dx = Output(x.shape);
    kernels().LinearBackwardByLeaves(dy.tensor, Tensor(), w.tensor, c.leaves, Write::kOverwrite, dx,
                                     Tensor(), Tensor());
    EXPECT_TRUE(Agrees(reference::MatMul(Used(dy, c.leaves), Transpose::kNo, w, Transpose::kNo), dx,
                       SumRoundings(c.features) + 3, 3));
  }
}

TEST_P(KernelsSuite, GeluMlpByLeaves) {
  for (const Case& c : Cases()) {
    if (c.leaves[0].size() > 1 || FeaturesOf(c.leaves.back()) == 0) continue;
    SCOPED_TRACE(testing::Message() << c.rows << ", " << c.leaves.size() << " of " << c.features);
    const Input x = Normal({c.rows, c.width}), dy = Normal(x.shape),
                up = Normal({c.features, c.width}, 0, 0.1), bias = Normal({c.features}),
                down = Normal({c.width, c.features}, 0, 0.1);
    const Tensor y = Output(x.shape), pre = Output({c.rows, c.features});
    kernels().GeluMlpByLeaves(x.tensor, up.tensor, bias.tensor, down.tensor, c.leaves, pre, y);
    const Tensor plain_pre = Output(pre.shape());
    const auto rows_of = [&](const Tensor& from, const std::vector<Range>& own) {
      return TakeRows(kernels(), from, own);
    };
    const auto columns_of = [&](const Tensor& from, const std::vector<Range>& own) {
      return TakeColumns(kernels(), from, own);
    };
    const Make leaf = [&](const std::vector<Range>& own) {
      const Tensor output = Output(x.shape), own_pre = Output({c.rows, FeaturesOf(own)});
      kernels().GeluMlp(x.tensor, rows_of(up.tensor, own), rows_of(bias.tensor, own),
                        columns_of(down.tensor, own), Tensor(), Tensor(), own_pre, output);
      PutColumns(kernels(), own_pre, own, plain_pre);
      return Download(output);
    };
    EXPECT_TRUE(SameBits(SumOf(c.leaves, y.elements(), dtype(), leaf), Download(y)));
    EXPECT_TRUE(SameBits(plain_pre, pre));
    for (const GradientMode& mode : GradientModes()) {
      const Tensor dx = Output(x.shape), dup = Target(mode, up), dbias = Target(mode, bias),
                   ddown = Target(mode, down);
      kernels().GeluMlpBackwardByLeaves(x.tensor, pre, up.tensor, down.tensor, c.leaves, dy.tensor,
                                        mode.write, {dx, dup, dbias, ddown, Tensor()});
      const Tensor plain_up = Target(mode, up), plain_bias = Target(mode, bias),
                   plain_down = Target(mode, down);
      const Make backward = [&](const std::vector<Range>& own) {
        const Tensor output = Output(x.shape);
        using Dimension = GradientSlice::Dimension;
        const GradientSlice own_up(kernels(), plain_up, Dimension::kFirst, own, mode.write),
            own_bias(kernels(), plain_bias, Dimension::kFirst, own, mode.write),
            own_down(kernels(), plain_down, Dimension::kLast, own, mode.write);
        kernels().GeluMlpBackward(
            x.tensor, columns_of(pre, own), rows_of(up.tensor, own), columns_of(down.tensor, own),
            dy.tensor, mode.write,
            {output, own_up.tensor(), own_bias.tensor(), own_down.tensor(), Tensor()});
        own_up.Put();
        own_bias.Put();
        own_down.Put();
        return Download(output);
      };
      EXPECT_TRUE(SameBits(SumOf(c.leaves, dx.elements(), dtype(), backward), Download(dx)));
      EXPECT_TRUE(SameBits(dup, plain_up));
      EXPECT_TRUE(SameBits(dbias, plain_bias));
      EXPECT_TRUE(SameBits(ddown, plain_down));
    }
  }
}

TEST_P(KernelsSuite, SumExponentialsByLeaves) {
  struct {
    int64_t rows, classes, columns, of_leaf;
  } const cases[] = {{3, 10, 12, 3}, {40, 1000, 1000, 250}, {200, 65, 66, 11}, {7, 5, 8, 8}};
  for (const auto& c : cases) {
    SCOPED_TRACE(testing::Message() << c.classes << " by " << c.of_leaf);
    const Input logits = Normal({c.rows, c.columns}, 2, 3);
    // Other ranks have the classes below 100.
    const Range classes = {100, c.classes};
    const Tensor targets = Upload(Integers(c.rows, 90, static_cast<int32_t>(100 + c.classes)));
    const Shape rows = {c.rows};
    const auto output = [&] { return Output(rows, DType::kF32); };
    const Tensor largest = output(), sums = output(), gaps = output();
    kernels().LargestLogits(logits.tensor, classes, largest, Tensor());
    kernels().SumExponentialsByLeaves(logits.tensor, classes, c.of_leaf, largest, targets, sums,
                                      gaps);
    std::vector<std::vector<float>> of_leaves;
    std::vector<float> gap(c.rows);
    for (int64_t first = 0; first < c.classes; first += c.of_leaf) {
      const Range own = {first, std::min(c.of_leaf, c.classes - first)};
      const Tensor own_sums = output(), own_gaps = output();
      kernels().SumExponentials(TakeColumns(kernels(), logits.tensor, {own}),
                                {classes.first + first, own.count}, largest, targets, own_sums,
                                own_gaps);
      of_leaves.push_back(Download(own_sums));
      const std::vector<float> own_gap = Download(own_gaps);
      for (int64_t r = 0; r < c.rows; ++r) gap[r] += own_gap[r];
    }
    EXPECT_TRUE(SameBits(Tree(of_leaves, 0, of_leaves.size(), DType::kF32), Download(sums)));
    EXPECT_TRUE(SameBits(gap, Download(gaps)));
  }
}

}  // namespace
}  // namespace lockstep
