// Convolution and pooling.

#include <algorithm>
#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "core/kernels/kernels_suite.h"

namespace lockstep {
namespace {

struct Case {
  std::string name;
  int64_t batch, height, width, in, out;
  Window window;
};

// The kinds that ResNets have, on images that are no squares, and odd ones beside them.
const Case kCases[] = {
    {"3x3, 64 channels", 2, 9, 7, 64, 80, {3, 1, 1}},
    {"3x3, 64 channels, batch 1", 1, 8, 12, 64, 64, {3, 1, 1}},
    {"3x3, 128 channels, outputs 4x4", 3, 4, 4, 128, 64, {3, 1, 1}},
    {"3x3, 64 channels, outputs 2x1", 2, 2, 1, 64, 96, {3, 1, 1}},
    {"3x3, few channels", 2, 9, 11, 3, 16, {3, 1, 1}},
    {"3x3, odd channels", 2, 7, 5, 17, 13, {3, 1, 1}},
    {"3x3, 32 channels, outputs 3x4", 4, 3, 4, 32, 48, {3, 1, 1}},
    {"3x3, stride 2", 2, 9, 8, 16, 24, {3, 2, 1}},
    {"3x3, stride 2, 64 channels", 1, 8, 10, 64, 128, {3, 2, 1}},
    {"1x1", 2, 5, 7, 64, 32, {1, 1, 0}},
    {"1x1, stride 2", 3, 8, 6, 16, 32, {1, 2, 0}},
    {"1x1, stride 2, outputs 2x2", 2, 4, 4, 64, 128, {1, 2, 0}},
    {"7x7, stride 2", 1, 23, 19, 3, 16, {7, 2, 3}},
    {"7x7, stride 2, 64 channels out", 2, 16, 12, 3, 64, {7, 2, 3}},
    {"one pixel", 1, 1, 1, 1, 1, {3, 1, 1}},
    {"no padding", 2, 6, 5, 8, 4, {3, 1, 0}},
};

Shape OutputShape(const Case& c) {
  return {c.batch, c.window.Output(c.height), c.window.Output(c.width), c.out};
}

// Convolutions of 3x3 windows with stride 1 may be made by Winograd's transforms. These mix the
// elements of a tile, so an error is as large as the tile's largest element allows, and their
// constants amplify it some ten times over that of the direct sum (Lavin and Gray, 2016): there the
// tolerance is relative to the largest magnitude of the result.
constexpr double kWinogradFactor = 4;

bool MayBeWinograd(const Case& c) { return c.window.kernel == 3 && c.window.stride == 1; }

double Roundings(const Case& c, int64_t terms) {
  return SumRoundings(terms) * (MayBeWinograd(c) ? kWinogradFactor : 1);
}

void WidenForWinograd(const Case& c, reference::Result& expected) {
  if (!MayBeWinograd(c)) return;
  std::vector<double>& magnitude = expected.magnitude;
  magnitude.assign(magnitude.size(), *std::max_element(magnitude.begin(), magnitude.end()));
}

TEST_P(KernelsSuite, Convolution) {
  for (const Case& c : kCases) {
    SCOPED_TRACE(c.name);
    const Input x = Normal({c.batch, c.height, c.width, c.in});
    const Input w = Normal({c.out, c.window.kernel, c.window.kernel, c.in});
    for (const Input& bias : {Input(), Normal({c.out})}) {
      Tensor y = Output(OutputShape(c));
      kernels().Convolution(x.tensor, w.tensor, bias.tensor, c.window, y);
      reference::Result expected = reference::Convolution(x, w, bias, c.window);
      WidenForWinograd(c, expected);
      EXPECT_TRUE(Agrees(expected, y, Roundings(c, c.window.kernel * c.window.kernel * c.in)));
    }
  }
}

TEST_P(KernelsSuite, ConvolutionBackward) {
  for (const Case& c : kCases) {
    SCOPED_TRACE(c.name);
    const Input x = Normal({c.batch, c.height, c.width, c.in}), dy = Normal(OutputShape(c));
    const Input w = Normal({c.out, c.window.kernel, c.window.kernel, c.in});
    const Input dw_start = Normal(w.shape), dbias_start = Normal({c.out});
    reference::ConvolutionGradients expected = reference::ConvolutionBackward(dy, x, w, c.window);
    WidenForWinograd(c, expected.dx);
    WidenForWinograd(c, expected.dw);
    Tensor dx = Output(x.shape);
    kernels().ConvolutionBackwardInput(dy.tensor, w.tensor, c.window, dx);
    EXPECT_TRUE(Agrees(expected.dx, dx, Roundings(c, c.window.kernel * c.window.kernel * c.out)));
    const int64_t pixels = dy.shape.rows();
    for (const GradientMode& mode : GradientModes()) {
      Tensor dw = Target(mode, dw_start), dbias = Target(mode, dbias_start);
      kernels().ConvolutionBackwardWeight(dy.tensor, x.tensor, c.window, mode.write, dw, dbias);
      EXPECT_TRUE(Agrees(expected.dw, mode, dw_start, dw, Roundings(c, pixels)));
      EXPECT_TRUE(Agrees(expected.dbias, mode, dbias_start, dbias, SumRoundings(pixels)));
      dw = Target(mode, dw_start);
      kernels().ConvolutionBackwardWeight(dy.tensor, x.tensor, c.window, mode.write, dw, Tensor());
      EXPECT_TRUE(Agrees(expected.dw, mode, dw_start, dw, Roundings(c, pixels)));
    }
  }
}

TEST_P(KernelsSuite, ConvolutionsRepeatTheirBits) {
  for (const Case& c : kCases) {
    SCOPED_TRACE(c.name);
    const Input x = Normal({c.batch, c.height, c.width, c.in}), dy = Normal(OutputShape(c));
    const Input w = Normal({c.out, c.window.kernel, c.window.kernel, c.in}), bias = Normal({c.out});
    Tensor first[4];
    for (int round = 0; round < 2; ++round) {
      const Tensor out[4] = {Output(dy.shape), Output(x.shape), Output(w.shape), Output({c.out})};
      kernels().Convolution(x.tensor, w.tensor, bias.tensor, c.window, out[0]);
      kernels().ConvolutionBackwardInput(dy.tensor, w.tensor, c.window, out[1]);
      kernels().ConvolutionBackwardWeight(dy.tensor, x.tensor, c.window, Write::kOverwrite, out[2],
                                          out[3]);
      for (int i = 0; i < 4; ++i) {
        if (round == 0) first[i] = out[i];
        EXPECT_TRUE(SameBits(first[i], out[i])) << i;
      }
    }
  }
}

const Case kPools[] = {
    {"ResNet's", 3, 9, 12, 17, 17, {3, 2, 1}},
    {"halving", 2, 6, 4, 65, 65, {2, 2, 0}},
    {"overlapping", 1, 5, 7, 3, 3, {3, 1, 1}},
};

TEST_P(KernelsSuite, MaxPool) {
  for (const Case& c : kPools) {
    SCOPED_TRACE(c.name);
    // All negative: a padding of zeros must not win.
    const Input x = Normal({c.batch, c.height, c.width, c.in}, -10);
    const Shape shape = OutputShape(c);
    Tensor y = Output(shape);
    kernels().MaxPool(x.tensor, c.window, y);
    EXPECT_TRUE(Agrees(reference::MaxPool(x, c.window), y, 0));

    const Input dy = Normal(shape);
    const Tensor dx = Output(x.shape), again = Output(x.shape);
    kernels().MaxPoolBackward(x.tensor, c.window, y, dy.tensor, dx);
    EXPECT_TRUE(Agrees(reference::MaxPoolBackward(x, c.window, dy), dx, SumRoundings(9)));
    kernels().MaxPoolBackward(x.tensor, c.window, y, dy.tensor, again);
    EXPECT_TRUE(SameBits(dx, again));
  }
}

// Where all of a window is equal, and where it is infinite, its first element gets the gradient;
// padding never does. Channels that are moved one at a time, and several.
TEST_P(KernelsSuite, MaxPoolOfEqualElements) {
  constexpr Window kHalve = {2, 2, 0}, kPadded = {3, 2, 1};
  for (const Window& window : {kHalve, kPadded}) {
    for (const int64_t channels : {2, 8}) {
      for (double value : {0.0, -std::numeric_limits<double>::infinity()}) {
        SCOPED_TRACE(testing::Message()
                     << window.kernel << ", " << channels << " channels, " << value);
        const Input x = Given(reference::Array(
            {1, 4, 6, channels}, std::vector<double>(static_cast<size_t>(24 * channels), value)));
        const Input dy = Normal({1, 2, 3, channels});
        const Tensor y = Output(dy.shape), dx = Output(x.shape);
        kernels().MaxPool(x.tensor, window, y);
        EXPECT_EQ(Download(y),
                  std::vector<float>(static_cast<size_t>(y.elements()), static_cast<float>(value)));
        kernels().MaxPoolBackward(x.tensor, window, y, dy.tensor, dx);
        EXPECT_TRUE(Agrees(reference::MaxPoolBackward(x, window, dy), dx, 0));
      }
    }
  }
}

// The first NaN of a window gets the gradient.
TEST_P(KernelsSuite, MaxPoolPassesNaN) {
  constexpr Window kHalve = {2, 2, 0};
  for (int64_t at = 0; at < 4; ++at) {
    std::vector<float> elements = {1, 2, 3, 4}, expected = {0, 0, 0, 0};
    elements[at] = std::numeric_limits<float>::quiet_NaN();
    expected[at] = 5;
    const Tensor x = Upload({1, 2, 2, 1}, elements), y = Output({1, 1, 1, 1});
    kernels().MaxPool(x, kHalve, y);
    EXPECT_TRUE(std::isnan(Download(y)[0])) << at;
    const Tensor dx = Output(x.shape());
    kernels().MaxPoolBackward(x, kHalve, y, Upload({1, 1, 1, 1}, {5}), dx);
    EXPECT_EQ(Download(dx), expected) << at;
  }
}

TEST_P(KernelsSuite, GlobalAveragePool) {
  for (const Shape& shape : {Shape{1, 1, 1, 3}, Shape{3, 4, 5, 17}, Shape{5, 7, 9, 65}}) {
    const Input x = Normal(shape), dy = Normal({shape[0], shape[3]});
    Tensor y = Output(dy.shape), dx = Output(shape);
    kernels().GlobalAveragePool(x.tensor, y);
    EXPECT_TRUE(Agrees(reference::GlobalAveragePool(x), y, SumRoundings(shape[1] * shape[2])));
    kernels().GlobalAveragePoolBackward(dy.tensor, dx);
    EXPECT_TRUE(Agrees(reference::GlobalAveragePoolBackward(dy, shape), dx, 2));
  }
}

TEST_P(KernelsSuite, Upsample) {
  for (const Shape& shape :
       {Shape{1, 1, 1, 3}, Shape{3, 4, 5, 17}, Shape{2, 9, 1, 8}, Shape{5, 7, 9, 65}}) {
    const Input x = Normal(shape);
    const Input dy = Normal({shape[0], 2 * shape[1], 2 * shape[2], shape[3]});
    Tensor y = Output(dy.shape), dx = Output(shape);
    kernels().Upsample(x.tensor, y);
    EXPECT_TRUE(Agrees(reference::Upsample(x), y, 0));
    kernels().UpsampleBackward(dy.tensor, dx);
    EXPECT_TRUE(Agrees(reference::UpsampleBackward(dy), dx, 2));
  }
}

// The small numbers are lost beside large ones of their line, not of their column.
TEST_P(KernelsSuite, UpsampleBackwardAddsLineByLine) {
  constexpr float kLarge = 0x1p15f, kSmall = 0x1p-12f;
  Tensor dx = Output({1, 1, 1, 1});
  kernels().UpsampleBackward(Upload({1, 2, 2, 1}, {kLarge, kSmall, -kLarge, kSmall}), dx);
  EXPECT_EQ(Download(dx)[0], 0);
  kernels().UpsampleBackward(Upload({1, 2, 2, 1}, {kLarge, -kLarge, kSmall, kSmall}), dx);
  EXPECT_EQ(Download(dx)[0], 2 * kSmall);
}

}  // namespace
}  // namespace lockstep
