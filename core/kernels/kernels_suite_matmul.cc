// Matrix products and what is fused with them.

#include <vector>

#include "core/kernels/kernels_suite.h"

namespace lockstep {
namespace {

struct Product {
  int64_t rows, in, out;
};

// All three extents differ, but for the single ones. The last ones span several tiles of rows, with
// a last tile that is whole and one that is a single row, and sums so long that they are cut.
constexpr Product kProducts[] = {{1, 1, 1},      {3, 17, 63},    {17, 3, 65},     {65, 100, 17},
                                 {63, 65, 3},    {1, 100, 65},   {100, 1, 3},     {100, 63, 1},
                                 {384, 20, 33},  {385, 65, 100}, {20, 850, 33},   {30, 17, 500},
                                 {1111, 20, 36}, {24, 128, 40},  {130, 1000, 64}, {33, 8, 72}};

testing::Message Named(const Product& p) {
  return testing::Message() << p.rows << " rows, " << p.in << " -> " << p.out;
}

TEST_P(KernelsSuite, MatMul) {
  for (const Product& p : kProducts) {
    SCOPED_TRACE(Named(p));
    for (Transpose ta : {Transpose::kNo, Transpose::kYes}) {
      for (Transpose tb : {Transpose::kNo, Transpose::kYes}) {
        const Input a = Normal(ta == Transpose::kNo ? Shape{p.rows, p.in} : Shape{p.in, p.rows});
        const Input b = Normal(tb == Transpose::kNo ? Shape{p.in, p.out} : Shape{p.out, p.in});
        const Input start = Normal({p.rows, p.out});
        const reference::Result expected = reference::MatMul(a, ta, b, tb);
        for (const GradientMode& mode : GradientModes()) {
          Tensor c = Target(mode, start);
          kernels().MatMul(a.tensor, ta, b.tensor, tb, mode.write, c);
          EXPECT_TRUE(Agrees(expected, mode, start, c, SumRoundings(p.in)));
        }
      }
    }
  }
}

TEST_P(KernelsSuite, LinearWithAndWithoutBiasAndResidual) {
  for (const Product& p : kProducts) {
    SCOPED_TRACE(Named(p));
    const Input x = Normal({p.rows, p.in}), w = Normal({p.out, p.in});
    for (const Input& bias : {Input(), Normal({p.out})}) {
      for (const Input& residual : {Input(), Normal({p.rows, p.out})}) {
        Tensor y = Output({p.rows, p.out});
        kernels().Linear(x.tensor, w.tensor, bias.tensor, residual.tensor, y);
        EXPECT_TRUE(Agrees(reference::Linear(x, w, bias, residual), y, SumRoundings(p.in + 2)));
      }
    }
  }
}

TEST_P(KernelsSuite, LinearOfASequence) {
  const Input x = Normal({3, 50, 17}), w = Normal({20, 17}), bias = Normal({20});
  Tensor y = Output({3, 50, 20});
  kernels().Linear(x.tensor, w.tensor, bias.tensor, Tensor(), y);
  EXPECT_TRUE(Agrees(reference::Linear(x, w, bias, {}), y, SumRoundings(18)));
}

TEST_P(KernelsSuite, LinearBackward) {
  for (const Product& p : kProducts) {
    SCOPED_TRACE(Named(p));
    const Input x = Normal({p.rows, p.in}), w = Normal({p.out, p.in}), dy = Normal({p.rows, p.out});
    const Input dw_start = Normal({p.out, p.in}), dbias_start = Normal({p.out});
    const reference::LinearGradients expected = reference::LinearBackward(dy, x, w);
    for (const GradientMode& mode : GradientModes()) {
      Tensor dx = Output({p.rows, p.in});
      Tensor dw = Target(mode, dw_start), dbias = Target(mode, dbias_start);
      kernels().LinearBackward(dy.tensor, x.tensor, w.tensor, mode.write, dx, dw, dbias);
      EXPECT_TRUE(Agrees(expected.dx, dx, SumRoundings(p.out)));
      EXPECT_TRUE(Agrees(expected.dw, mode, dw_start, dw, SumRoundings(p.rows)));
      EXPECT_TRUE(Agrees(expected.dbias, mode, dbias_start, dbias, SumRoundings(p.rows)));
    }
  }
}

TEST_P(KernelsSuite, LinearBackwardComputesWhatIsDefined) {
  const Product p = {300, 20, 33};
  const Input x = Normal({p.rows, p.in}), w = Normal({p.out, p.in}), dy = Normal({p.rows, p.out});
  const reference::LinearGradients expected = reference::LinearBackward(dy, x, w);
  for (int defined = 0; defined < 8; ++defined) {
    SCOPED_TRACE(defined);
    Tensor dx, dw, dbias;
    if (defined & 1) dx = Output({p.rows, p.in});
    if (defined & 2) dw = Output({p.out, p.in});
    if (defined & 4) dbias = Output({p.out});
    kernels().LinearBackward(dy.tensor, x.tensor, w.tensor, Write::kOverwrite, dx, dw, dbias);
    if (defined & 1) {
      EXPECT_TRUE(Agrees(expected.dx, dx, SumRoundings(p.out)));
    }
    if (defined & 2) {
      EXPECT_TRUE(Agrees(expected.dw, dw, SumRoundings(p.rows)));
    }
    if (defined & 4) {
      EXPECT_TRUE(Agrees(expected.dbias, dbias, SumRoundings(p.rows)));
    }
  }
}

// An MLP's inputs: width -> hidden -> width. The last one has the aligned rows that an epilogue may
// want.
struct MlpShape {
  int64_t rows, width, hidden;
};
constexpr MlpShape kMlps[] = {{1, 3, 17},    {17, 5, 3},    {100, 17, 63}, {385, 24, 100},
                              {65, 20, 401}, {700, 33, 65}, {130, 24, 80}};

// Roundings: those of the two products, and GELU's eight. `pre` and its GELU are stored; the
// reference's magnitude counts both, so that one rounding of it stands for the two.
TEST_P(KernelsSuite, GeluMlp) {
  for (const MlpShape& n : kMlps) {
    SCOPED_TRACE(testing::Message() << n.rows << ", " << n.width << ", " << n.hidden);
    const Input x = Normal({n.rows, n.width}), up_bias = Normal({n.hidden});
    const Input up = Normal({n.hidden, n.width}, 0, 0.5), down = Normal({n.width, n.hidden});
    for (const Input& bias : {Input(), Normal({n.width})}) {
      for (const Input& residual : {Input(), Normal({n.rows, n.width})}) {
        Tensor pre = Output({n.rows, n.hidden}), y = Output({n.rows, n.width});
        kernels().GeluMlp(x.tensor, up.tensor, up_bias.tensor, down.tensor, bias.tensor,
                          residual.tensor, pre, y);
        const reference::GeluMlp expected =
            reference::GeluMlpForward(x, up, up_bias, down, bias, residual);
        EXPECT_TRUE(Agrees(expected.pre, pre, SumRoundings(n.width)));
        EXPECT_TRUE(Agrees(expected.y, y, SumRoundings(n.width + n.hidden) + 8, 1));
      }
    }
  }
}

TEST_P(KernelsSuite, GeluLinear) {
  for (const MlpShape& n : kMlps) {
    SCOPED_TRACE(testing::Message() << n.rows << ", " << n.width << ", " << n.hidden);
    const Input x = Normal({n.rows, n.width}), up_bias = Normal({n.hidden});
    const Input up = Normal({n.hidden, n.width}, 0, 0.5), down = Normal({n.width, n.hidden});
    for (const Input& bias : {Input(), Normal({n.width})}) {
      for (const Input& residual : {Input(), Normal({n.rows, n.width})}) {
        const Tensor pre = Output({n.rows, n.hidden}), y = Output({n.rows, n.width});
        const Tensor mlp = Output({n.rows, n.width});
        kernels().GeluMlp(x.tensor, up.tensor, up_bias.tensor, down.tensor, bias.tensor,
                          residual.tensor, pre, mlp);
        kernels().GeluLinear(pre, down.tensor, bias.tensor, residual.tensor, y);
        if (pre.dtype() == DType::kF32) {
          EXPECT_TRUE(SameBits(Download(mlp), Download(y)));
        }
        const reference::GeluMlp expected =
            reference::GeluMlpForward(x, up, up_bias, down, bias, residual);
        EXPECT_TRUE(Agrees(expected.y, y, SumRoundings(n.width + n.hidden) + 8, 1));
      }
    }
  }
}

// The gradient of `pre` may be stored too.
TEST_P(KernelsSuite, GeluMlpBackward) {
  for (const MlpShape& n : kMlps) {
    SCOPED_TRACE(testing::Message() << n.rows << ", " << n.width << ", " << n.hidden);
    const Input x = Normal({n.rows, n.width}), dy = Normal({n.rows, n.width});
    const Input up = Normal({n.hidden, n.width}, 0, 0.5), down = Normal({n.width, n.hidden});
    const Input pre = Normal({n.rows, n.hidden}, 0, 2);
    const Input up_start = Normal(up.shape), up_bias_start = Normal({n.hidden});
    const Input down_start = Normal(down.shape), down_bias_start = Normal({n.width});
    const reference::GeluMlpGradients expected = reference::GeluMlpBackward(x, pre, up, down, dy);
    for (const GradientMode& mode : GradientModes()) {
      const Kernels::GeluMlpGradients actual = {.x = Output(x.shape),
                                                .up = Target(mode, up_start),
                                                .up_bias = Target(mode, up_bias_start),
                                                .down = Target(mode, down_start),
                                                .down_bias = Target(mode, down_bias_start)};
      kernels().GeluMlpBackward(x.tensor, pre.tensor, up.tensor, down.tensor, dy.tensor, mode.write,
                                actual);
      const double roundings = SumRoundings(n.width + n.rows) + 8;
      EXPECT_TRUE(Agrees(expected.x, actual.x, SumRoundings(n.width + n.hidden) + 8, 1));
      EXPECT_TRUE(Agrees(expected.up, mode, up_start, actual.up, roundings, 1));
      EXPECT_TRUE(Agrees(expected.up_bias, mode, up_bias_start, actual.up_bias, roundings, 1));
      EXPECT_TRUE(Agrees(expected.down, mode, down_start, actual.down, roundings, 1));
      EXPECT_TRUE(Agrees(expected.down_bias, mode, down_bias_start, actual.down_bias, roundings));
    }
  }
}

TEST_P(KernelsSuite, GeluMlpBackwardComputesWhatIsDefined) {
  const Input x = Normal({200, 5}), dy = Normal({200, 5}), pre = Normal({200, 9});
  const Input up = Normal({9, 5}), down = Normal({5, 9});
  const reference::GeluMlpGradients expected = reference::GeluMlpBackward(x, pre, up, down, dy);
  for (int one = 0; one < 5; ++one) {
    SCOPED_TRACE(one);
    Kernels::GeluMlpGradients actual;
    Tensor* outputs[] = {&actual.x, &actual.up, &actual.up_bias, &actual.down, &actual.down_bias};
    const reference::Result* results[] = {&expected.x, &expected.up, &expected.up_bias,
                                          &expected.down, &expected.down_bias};
    *outputs[one] = Output(results[one]->shape);
    kernels().GeluMlpBackward(x.tensor, pre.tensor, up.tensor, down.tensor, dy.tensor,
                              Write::kOverwrite, actual);
    EXPECT_TRUE(Agrees(*results[one], *outputs[one], SumRoundings(200) + 8, 1));
  }
}

// Ranks add up what micro-batches gave in the same order everywhere, so each kernel must repeat its
// bits, whatever memory it is given and whatever ran before.
TEST_P(KernelsSuite, MatrixProductsRepeatTheirBits) {
  const Input x = Normal({385, 65}), w = Normal({100, 65}), bias = Normal({100});
  const Input dy = Normal({385, 100}), up = Normal({100, 65}), down = Normal({65, 100});
  std::vector<std::vector<float>> first;
  for (int round = 0; round < 3; ++round) {
    std::vector<Tensor> out;
    const auto output = [&](const Shape& shape) { return out.emplace_back(Output(shape)); };
    kernels().Linear(x.tensor, w.tensor, bias.tensor, dy.tensor, output({385, 100}));
    kernels().MatMul(dy.tensor, Transpose::kYes, x.tensor, Transpose::kNo, Write::kOverwrite,
                     output({100, 65}));
    const Tensor dx = output({385, 65}), dw = output({100, 65}), dbias = output({100});
    kernels().LinearBackward(dy.tensor, x.tensor, w.tensor, Write::kOverwrite, dx, dw, dbias);
    const Tensor pre = output({385, 100}), y = output({385, 65});
    kernels().GeluMlp(x.tensor, up.tensor, bias.tensor, down.tensor, {}, x.tensor, pre, y);
    const Kernels::GeluMlpGradients gradients = {output({385, 65}), output({100, 65}),
                                                 output({100}), output({65, 100}), output({65})};
    kernels().GeluMlpBackward(x.tensor, pre, up.tensor, down.tensor, y, Write::kOverwrite,
                              gradients);
    for (size_t i = 0; i < out.size(); ++i) {
      if (round == 0) first.push_back(Download(out[i]));
      EXPECT_TRUE(SameBits(first[i], Download(out[i]))) << i;
    }
  }
}

}  // namespace
}  // namespace lockstep
