// Cross entropy, accuracy, and the reductions whose result goes to the host.

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "core/kernels/feature_leaves.h"
#include "core/kernels/kernels_suite.h"

namespace lockstep {
namespace {

constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();
constexpr float kInfinity = std::numeric_limits<float>::infinity();

// Against the reference, whose gradients go to a tensor of their own, nowhere, and in place.
TEST_P(KernelsSuite, CrossEntropy) {
  struct {
    int64_t rows, classes;
    double spread;
  } const cases[] = {{1, 1, 1},      {3, 2, 1},     {17, 10, 1},  {65, 63, 3}, {100, 65, 3},
                     {40, 1000, 10}, {7, 100, 1e4}, {3, 9001, 2}, {3, 9008, 5}};
  for (const auto& c : cases) {
    SCOPED_TRACE(testing::Message() << c.rows << " x " << c.classes);
    const Input logits = Normal({c.rows, c.classes}, 2, c.spread);
    std::vector<int32_t> classes = Integers(c.rows, 0, static_cast<int32_t>(c.classes) - 1);
    if (c.rows > 2) classes[1] = -1;
    if (c.rows > 10) classes[10] = -100;
    const Tensor targets = Upload(classes);
    constexpr float kFactor = 0.37f;
    const reference::CrossEntropy expected =
        reference::SoftmaxCrossEntropy(logits, classes, kFactor);
    const double roundings = SumRoundings(c.classes) + 8;

    Tensor losses = Output({c.rows}, DType::kF32), dlogits = Output(logits.shape);
    kernels().SoftmaxCrossEntropy(logits.tensor, c.classes, targets, kFactor, losses, dlogits);
    EXPECT_TRUE(Agrees(expected.losses, losses, roundings));
    EXPECT_TRUE(Agrees(expected.dlogits, dlogits, roundings));

    Tensor alone = Output({c.rows}, DType::kF32);
    kernels().SoftmaxCrossEntropy(logits.tensor, c.classes, targets, kFactor, alone, Tensor());
    EXPECT_TRUE(SameBits(losses, alone));

    Tensor in_place = Given(logits).tensor, again = Output({c.rows}, DType::kF32);
    kernels().SoftmaxCrossEntropy(in_place, c.classes, targets, kFactor, again, in_place);
    EXPECT_TRUE(SameBits(losses, again));
    EXPECT_TRUE(SameBits(dlogits, in_place));
  }
}

// Behind the classes of a row lie logits that would win.
TEST_P(KernelsSuite, PaddedClassesTakeNoPart) {
  struct {
    int64_t classes, columns;
  } const cases[] = {{1, 64}, {63, 64}, {64, 65}, {65, 128}, {1000, 1003}, {9001, 9024}};
  for (const auto& c : cases) {
    SCOPED_TRACE(testing::Message() << c.classes << " of " << c.columns);
    constexpr int64_t kRows = 17;
    constexpr float kFactor = 0.37f;
    const Input logits = Normal({kRows, c.classes}, 0, 3);
    std::vector<int32_t> classes = Integers(kRows, 0, static_cast<int32_t>(c.classes) - 1);
    int64_t correct = 0;
    for (int64_t r = 0; r < kRows; ++r) {
      const auto row = logits.value.begin() + r * c.classes;
      const auto best = static_cast<int32_t>(std::max_element(row, row + c.classes) - row);
      if (r % 3 == 0) classes[r] = best;
      if (r == 1) classes[r] = -1;
      correct += classes[r] == best;
    }
    const std::vector<Range> own = {{0, c.classes}}, padding = {{c.classes, c.columns - c.classes}};
    const Tensor padded = Output({kRows, c.columns}), targets = Upload(classes);
    kernels().Fill(padded, 1000);
    PutColumns(kernels(), logits.tensor, own, padded);
    EXPECT_EQ(kernels().CountCorrect(padded, c.classes, targets), correct);

    const reference::CrossEntropy expected =
        reference::SoftmaxCrossEntropy(logits, classes, kFactor);
    const double roundings = SumRoundings(c.classes) + 8;
    const Tensor losses = Output({kRows}, DType::kF32), dlogits = Output(padded.shape());
    kernels().SoftmaxCrossEntropy(padded, c.classes, targets, kFactor, losses, dlogits);
    kernels().SoftmaxCrossEntropy(padded, c.classes, targets, kFactor, losses, padded);
    EXPECT_TRUE(Agrees(expected.losses, losses, roundings));
    EXPECT_TRUE(Agrees(expected.dlogits, TakeColumns(kernels(), dlogits, own), roundings));
    for (const float slope : Download(TakeColumns(kernels(), dlogits, padding))) {
      EXPECT_EQ(slope, 0);
    }
    EXPECT_TRUE(SameBits(dlogits, padded));
  }
}

TEST_P(KernelsSuite, CrossEntropyOfHugeLogits) {
  const float huge = Rounded(dtype() == DType::kF16 ? 6e4f : 1e30f, dtype());
  const float largest = Rounded(dtype() == DType::kF16 ? 65504 : 3e38f, dtype());
  Tensor logits = Upload({3, 3}, {huge, 0, -huge, -huge, -huge, -huge, largest, largest, 0});
  Tensor losses = Output({3}, DType::kF32), dlogits = Output({3, 3});
  kernels().SoftmaxCrossEntropy(logits, 3, Upload({1, 2, 0}), 1, losses, dlogits);
  const std::vector<float> loss = Download(losses), slope = Download(dlogits);
  EXPECT_FLOAT_EQ(loss[0], huge);
  EXPECT_FLOAT_EQ(loss[1], std::log(3.0f));
  EXPECT_FLOAT_EQ(loss[2], std::log(2.0f));
  const float expected[] = {1, -1, 0, 1.0f / 3, 1.0f / 3, -2.0f / 3, -0.5f, 0.5f, 0};
  for (int i = 0; i < 9; ++i) {
    EXPECT_NEAR(slope[i], expected[i], 1e-6 + UnitRoundoff(dtype()) * std::abs(expected[i])) << i;
  }
}

TEST_P(KernelsSuite, CrossEntropyRepeatsItsBits) {
  const Input logits = Normal({200, 333}, 0, 3);
  const Tensor targets = Upload(Integers(200, 0, 332));
  Tensor losses = Output({200}, DType::kF32), dlogits = Output(logits.shape);
  kernels().SoftmaxCrossEntropy(logits.tensor, 333, targets, 0.1f, losses, dlogits);
  for (int round = 0; round < 3; ++round) {
    Tensor losses_again = Output({200}, DType::kF32), dlogits_again = Output(logits.shape);
    kernels().SoftmaxCrossEntropy(logits.tensor, 333, targets, 0.1f, losses_again, dlogits_again);
    EXPECT_TRUE(SameBits(losses, losses_again));
    EXPECT_TRUE(SameBits(dlogits, dlogits_again));
  }
}

TEST_P(KernelsSuite, CountCorrect) {
  for (int64_t classes : {1, 2, 17, 100}) {
    constexpr int64_t kRows = 65;
    const Input logits = Normal({kRows, classes});
    std::vector<int32_t> targets = Integers(kRows, -1, static_cast<int32_t>(classes) - 1);
    int64_t correct = 0;
    for (int64_t r = 0; r < kRows; ++r) {
      const auto row = logits.value.begin() + r * classes;
      const auto best = static_cast<int32_t>(std::max_element(row, row + classes) - row);
      if (r % 3 == 0) targets[r] = best;
      correct += targets[r] == best;
    }
    EXPECT_EQ(kernels().CountCorrect(logits.tensor, classes, Upload(targets)), correct);
  }
}

TEST_P(KernelsSuite, Sum) {
  std::vector<Tensor> all;
  ExactSum whole;
  for (int64_t n : {1, 3, 17, 63, 65, 100, 50001}) {
    const Input x = Normal({n}, 1, 100, DType::kF32);
    double sum = 0, magnitude = 0;
    ExactSum exact;
    for (double value : x.value) {
      sum += value;
      magnitude += std::abs(value);
      exact.Add(static_cast<float>(value));
    }
    EXPECT_NEAR(kernels().Sum(x.tensor).Total(), sum, 1e-14 * magnitude);
    EXPECT_EQ(kernels().Sum(x.tensor), exact);
    all.push_back(x.tensor);
    whole.Add(exact);
  }
  EXPECT_EQ(kernels().SumOfAll(all), whole);
  EXPECT_EQ(kernels().SumOfAll({}), ExactSum());
}

TEST_P(KernelsSuite, MaxMagnitude) {
  for (int64_t n : {1, 3, 17, 63, 65, 100, 50001}) {
    std::vector<float> elements = Download(Normal({n}).tensor);
    for (int64_t at : {int64_t{0}, n / 2, n - 1}) {
      for (float sign : {-1.0f, 1.0f}) {
        const float before = elements[at];
        elements[at] = sign * 100;
        EXPECT_EQ(kernels().MaxMagnitude(Upload({n}, elements)), 100);
        for (float broken : {kNaN, kInfinity}) {
          elements[at] = sign * broken;
          EXPECT_EQ(kernels().MaxMagnitude(Upload({n}, elements)), kInfinity);
        }
        elements[at] = before;
      }
    }
  }
  Tensor zeros = Output({20});
  kernels().Fill(zeros, -0.0f);
  EXPECT_EQ(kernels().MaxMagnitude(zeros), 0);
  const float subnormal = dtype() == DType::kF16 ? 0x1p-23f : 0x1p-131f;
  kernels().Fill(zeros, -subnormal);
  EXPECT_EQ(kernels().MaxMagnitude(zeros), subnormal);
}

// Rounding falls on the last of the bins, 2^-62 of the scale's square, and on their total.
TEST_P(KernelsSuite, SumOfSquares) {
  for (int64_t n : {1, 3, 17, 63, 65, 100, 50001}) {
    const double extreme = dtype() == DType::kF16 ? 1e3 : 1e18;
    for (double spread : {1 / extreme, 1.0, extreme}) {
      const Input x = Normal({n}, 0, spread);
      const float scale = kernels().MaxMagnitude(x.tensor);
      long double exact = 0;
      for (double value : x.value) exact += static_cast<long double>(value) * value;
      const auto expected = static_cast<double>(exact);
      const double bins = static_cast<double>(n) * 0x1p-60 * scale * scale;
      EXPECT_NEAR(kernels().SumOfSquares(x.tensor, scale).Total(), expected,
                  bins + 0x1p-51 * expected);
      // A scale that others set, for tensors with larger elements.
      const float larger = scale * 1000;
      EXPECT_NEAR(kernels().SumOfSquares(x.tensor, larger).Total(), expected,
                  bins * 1e6 + 0x1p-51 * expected);
    }
  }
}

// Elements from 1 to 1e-12: every order of addition would round differently.
TEST_P(KernelsSuite, SumOfSquaresDoesNotDependOnCuts) {
  constexpr int64_t kCount = 100003;
  Input x = Normal({kCount});
  for (int64_t i = 0; i < kCount; ++i) x.value[i] *= std::pow(10.0, -static_cast<double>(i % 13));
  x = Given(x);
  const float scale = kernels().MaxMagnitude(x.tensor) * 1.1f;
  const SquareSum whole = kernels().SumOfSquares(x.tensor, scale);
  EXPECT_NEAR(whole.Total(), kCount / 13 * 1.0101, kCount / 13 * 0.1);
  const auto slice = [&](int64_t begin, int64_t end) {
    return Upload({end - begin}, {x.value.begin() + begin, x.value.begin() + end});
  };
  for (int64_t parts : {2, 3, 7}) {
    SquareSum forward, backward;
    for (int64_t p = 0; p < parts; ++p) {
      forward.Add(
          kernels().SumOfSquares(slice(kCount * p / parts, kCount * (p + 1) / parts), scale));
      const int64_t q = parts - 1 - p;
      backward.Add(
          kernels().SumOfSquares(slice(kCount * q / parts, kCount * (q + 1) / parts), scale));
    }
    for (int bin = 0; bin < 3; ++bin) {
      EXPECT_EQ(forward.bins[bin], whole.bins[bin]) << parts << " parts, bin " << bin;
      EXPECT_EQ(backward.bins[bin], whole.bins[bin]) << parts << " parts, bin " << bin;
    }
  }
  const std::vector<Tensor> halves = {slice(0, kCount / 2), slice(kCount / 2, kCount)};
  const SquareSum together = kernels().SumOfSquaresOfAll(halves, scale);
  for (int bin = 0; bin < 3; ++bin) EXPECT_EQ(together.bins[bin], whole.bins[bin]) << bin;
  EXPECT_EQ(kernels().MaxMagnitudeOfAll(halves), kernels().MaxMagnitude(x.tensor));
  EXPECT_EQ(kernels().MaxMagnitudeOfAll({}), 0);
  EXPECT_EQ(kernels().SumOfSquaresOfAll({}, scale).Total(), 0);
  std::vector<float> reversed(x.value.rbegin(), x.value.rend());
  const SquareSum mirrored = kernels().SumOfSquares(Upload({kCount}, reversed), scale);
  for (int bin = 0; bin < 3; ++bin) EXPECT_EQ(mirrored.bins[bin], whole.bins[bin]) << bin;
}

}  // namespace
}  // namespace lockstep
