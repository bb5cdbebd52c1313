// Batch, layer and root mean square normalisation.

#include <cmath>
#include <limits>
#include <vector>

#include "core/kernels/kernels_suite.h"

namespace lockstep {
namespace {

// Far from 0, so that it shows where it is added.
constexpr float kEpsilon = 0.3f;

// A handful of operations around statistics, whose own error the reference's condition counts; they
// are sums in blocks of at most some hundred terms, or pairwise.
const double kRoundings = SumRoundings(100);

struct Case {
  int64_t rows, width;
};
// The last ones take several threads, and several blocks of rows.
constexpr Case kCases[] = {{1, 3},    {3, 17},    {17, 63},   {63, 65},  {100, 1},
                           {65, 100}, {600, 100}, {5000, 17}, {2100, 8}, {300, 64},
                           {7, 768},  {5, 1032},  {150, 264}};

// What the variance is to agree with, as exactly as the backend knows it.
reference::Result Spread(const KernelsBackend& backend, const reference::Normalized& normalized,
                         double epsilon) {
  reference::Result spread = normalized.spread;
  if (!backend.batch_norm_of_library) return spread;
  for (double& magnitude : spread.magnitude) magnitude += epsilon;
  return spread;
}

// How often y may have been rounded to the compute dtype on the way.
int RoundedBetween(const KernelsBackend& backend, const Tensor& residual) {
  return backend.batch_norm_of_library && residual.defined() ? 1 : 0;
}

testing::Message Named(const Case& c) { return testing::Message() << c.rows << " x " << c.width; }

TEST_P(KernelsSuite, BatchNorm) {
  for (const Case& c : kCases) {
    SCOPED_TRACE(Named(c));
    const Input x = Normal({c.rows, c.width}, 1.5, 2);
    const Input scale = Normal({c.width}, 1), shift = Normal({c.width});
    for (const Input& residual : {Input(), Normal(x.shape)}) {
      for (Activation activation : {Activation::kNone, Activation::kRelu}) {
        Tensor y = Output(x.shape);
        Tensor mean = Output({c.width}, DType::kF32), variance = Output({c.width}, DType::kF32);
        kernels().BatchNorm(x.tensor, scale.tensor, shift.tensor, residual.tensor, kEpsilon,
                            activation, y, mean, variance);
        const reference::Normalized expected =
            reference::BatchNorm(x, scale, shift, residual, kEpsilon, activation);
        EXPECT_TRUE(Agrees(expected.mean, mean, kRoundings));
        EXPECT_TRUE(Agrees(Spread(GetParam(), expected, kEpsilon), variance, kRoundings));
        EXPECT_TRUE(Agrees(expected.y, y, kRoundings, RoundedBetween(GetParam(), residual.tensor)));
      }
    }
  }
}

TEST_P(KernelsSuite, BatchNormOfImages) {
  const Input x = Normal({3, 5, 7, 20}), scale = Normal({20}, 1), shift = Normal({20});
  Tensor y = Output(x.shape);
  Tensor mean = Output({20}, DType::kF32), variance = Output({20}, DType::kF32);
  kernels().BatchNorm(x.tensor, scale.tensor, shift.tensor, Tensor(), 1e-5f, Activation::kRelu, y,
                      mean, variance);
  const reference::Normalized expected =
      reference::BatchNorm(x, scale, shift, {}, 1e-5, Activation::kRelu);
  EXPECT_TRUE(Agrees(expected.y, y, kRoundings));
  EXPECT_TRUE(Agrees(expected.mean, mean, kRoundings));
  EXPECT_TRUE(Agrees(Spread(GetParam(), expected, 1e-5), variance, kRoundings));
}

// The mean of the squares minus the square of the mean would keep nothing here.
TEST_P(KernelsSuite, BatchNormVarianceDoesNotCancel) {
  const Input x = Normal({500, 3}, 3000), one = Normal({3});
  Tensor y = Output(x.shape);
  Tensor mean = Output({3}, DType::kF32), variance = Output({3}, DType::kF32);
  kernels().BatchNorm(x.tensor, one.tensor, one.tensor, Tensor(), kEpsilon, Activation::kNone, y,
                      mean, variance);
  const reference::Normalized expected =
      reference::BatchNorm(x, one, one, {}, kEpsilon, Activation::kNone);
  EXPECT_TRUE(Agrees(Spread(GetParam(), expected, kEpsilon), variance, kRoundings));
}

TEST_P(KernelsSuite, BatchNormInference) {
  for (const Case& c : kCases) {
    SCOPED_TRACE(Named(c));
    const Input x = Normal({c.rows, c.width}), mean = Normal({c.width}, 0, 1, DType::kF32);
    const Input scale = Normal({c.width}, 1), shift = Normal({c.width});
    Input variance = Normal({c.width});
    for (double& v : variance.value) v *= v;
    variance = Given(variance, DType::kF32);
    for (const Input& residual : {Input(), Normal(x.shape)}) {
      for (Activation activation : {Activation::kNone, Activation::kRelu}) {
        Tensor y = Output(x.shape);
        kernels().BatchNormInference(x.tensor, scale.tensor, shift.tensor, residual.tensor,
                                     mean.tensor, variance.tensor, kEpsilon, activation, y);
        EXPECT_TRUE(Agrees(reference::BatchNormInference(x, scale, shift, residual, mean, variance,
                                                         kEpsilon, activation),
                           y, 8, RoundedBetween(GetParam(), residual.tensor)));
      }
    }
  }
}

TEST_P(KernelsSuite, BatchNormPassesNaN) {
  Input x = Normal({8, 3}), one = Normal({3});
  x.value[4] = std::numeric_limits<double>::quiet_NaN();
  x = Given(x);
  Tensor y = Output(x.shape);
  Tensor mean = Output({3}, DType::kF32), variance = Output({3}, DType::kF32);
  kernels().BatchNorm(x.tensor, one.tensor, one.tensor, Tensor(), kEpsilon, Activation::kRelu, y,
                      mean, variance);
  const std::vector<float> elements = Download(y);
  for (int64_t i = 0; i < 24; ++i) EXPECT_EQ(std::isnan(elements[i]), i % 3 == 1) << i;
}

TEST_P(KernelsSuite, BatchNormBackward) {
  for (const Case& c : kCases) {
    SCOPED_TRACE(Named(c));
    const Input x = Normal({c.rows, c.width}, 1.5, 2), dy = Normal(x.shape);
    const Input scale = Normal({c.width}, 1), shift = Normal({c.width});
    const Input dscale_start = Normal({c.width}), dshift_start = Normal({c.width});
    const reference::Normalized forward =
        reference::BatchNorm(x, scale, shift, {}, kEpsilon, Activation::kRelu);
    const Tensor mean = Given(forward.mean, DType::kF32).tensor;
    const Tensor variance = Given(forward.spread, DType::kF32).tensor;
    const Tensor kept = kernels().BatchNorm(
        x.tensor, scale.tensor, shift.tensor, Tensor(), kEpsilon, Activation::kRelu,
        Output(x.shape), Output({c.width}, DType::kF32), Output({c.width}, DType::kF32));
    for (const Input& y : {Input(), Given(forward.y)}) {
      const reference::NormalizationGradients expected =
          reference::BatchNormBackward(x, scale, kEpsilon, y, dy);
      for (bool with_residual : {false, true}) {
        for (const GradientMode& mode : GradientModes()) {
          Tensor dx = Output(x.shape), dresidual = with_residual ? Output(x.shape) : Tensor();
          Tensor dscale = Target(mode, dscale_start), dshift = Target(mode, dshift_start);
          kernels().BatchNormBackward(x.tensor, scale.tensor, mean, variance, kept, kEpsilon,
                                      y.tensor, dy.tensor, dx, dresidual, mode.write, dscale,
                                      dshift);
          EXPECT_TRUE(Agrees(expected.dx, dx, kRoundings));
          if (with_residual) {
            EXPECT_TRUE(Agrees(expected.dresidual, dresidual, 0));
          }
          EXPECT_TRUE(Agrees(expected.dscale, mode, dscale_start, dscale, kRoundings));
          EXPECT_TRUE(Agrees(expected.dshift, mode, dshift_start, dshift, kRoundings));
        }
      }
      Tensor dx = Output(x.shape);
      kernels().BatchNormBackward(x.tensor, scale.tensor, mean, variance, kept, kEpsilon, y.tensor,
                                  dy.tensor, dx, Tensor(), Write::kOverwrite, Tensor(), Tensor());
      EXPECT_TRUE(Agrees(expected.dx, dx, kRoundings));
    }
  }
}

// The statistics of all rows, put together from those of the micro-batches.
TEST_P(KernelsSuite, RunningStatistics) {
  constexpr int64_t kChannels = 17, kRows = 20;
  constexpr int64_t kMicroBatches[] = {20, 20, 15};  // rows: the last weighs 3/4
  constexpr float kMomentum = 0.3f;
  constexpr double kSamples = 55;
  const Input all = Normal({55, kChannels}, 1, 2);
  const Input running_mean = Normal({kChannels}, 0, 1, DType::kF32);
  const Input running_variance = Normal({kChannels}, 5, 1, DType::kF32);
  Tensor sums = Output({3, kChannels}, DType::kF32);
  Tensor mean = Given(running_mean, DType::kF32).tensor;
  Tensor variance = Given(running_variance, DType::kF32).tensor;
  const auto measure = [](const reference::Array& x) {
    const reference::Array one(Shape{kChannels});
    return reference::BatchNorm(x, one, one, {}, 0, Activation::kNone);
  };
  auto begin = all.value.begin();
  for (const int64_t rows : kMicroBatches) {
    const reference::Normalized part =
        measure({Shape{rows, kChannels}, {begin, begin + rows * kChannels}});
    kernels().AddStatistics(
        Given(part.mean, DType::kF32).tensor, Given(part.spread, DType::kF32).tensor,
        static_cast<float>(rows) / kRows,
        begin == all.value.begin() ? Write::kOverwrite : Write::kAccumulate, sums);
    begin += rows * kChannels;
  }
  kernels().UpdateRunningStatistics(sums, kSamples / kRows, kRows, kMomentum, mean, variance);

  const reference::Normalized whole = measure(all);
  reference::Result expected_mean(Shape{kChannels}), expected_variance(Shape{kChannels});
  for (int64_t c = 0; c < kChannels; ++c) {
    expected_mean.Add(c, (1.0 - kMomentum) * running_mean[c]);
    expected_mean.Add(c, kMomentum * whole.mean[c]);
    expected_variance.Add(c, (1.0 - kMomentum) * running_variance[c]);
    // The spread between micro-batches is a difference of squares of the means' size.
    const double squares = whole.spread[c] + whole.mean[c] * whole.mean[c];
    expected_variance.Add(c, kMomentum * whole.spread[c] * kSamples / (kSamples - 1),
                          squares / whole.spread[c]);
  }
  EXPECT_TRUE(Agrees(expected_mean, mean, 8));
  EXPECT_TRUE(Agrees(expected_variance, variance, 8));
}

// A variance that is small beside the mean: no difference of squares may drown it.
TEST_P(KernelsSuite, RunningStatisticsOfOneMicroBatch) {
  constexpr int64_t kChannels = 17, kRows = 20;
  constexpr float kMomentum = 0.3f;
  const Input batch_mean = Normal({kChannels}, 1000, 1, DType::kF32);
  const Input batch_variance = Normal({kChannels}, 0.01, 0.001, DType::kF32);
  const Input running_mean = Normal({kChannels}, 1000, 1, DType::kF32);
  const Input running_variance = Normal({kChannels}, 0.02, 0.001, DType::kF32);
  Tensor sums = Output({3, kChannels}, DType::kF32);
  kernels().AddStatistics(batch_mean.tensor, batch_variance.tensor, 1, Write::kOverwrite, sums);
  Tensor mean = Given(running_mean, DType::kF32).tensor;
  Tensor variance = Given(running_variance, DType::kF32).tensor;
  kernels().UpdateRunningStatistics(sums.View(0, {2, kChannels}), 1, kRows, kMomentum, mean,
                                    variance);

  reference::Result expected_mean(Shape{kChannels}), expected_variance(Shape{kChannels});
  for (int64_t c = 0; c < kChannels; ++c) {
    expected_mean.Add(c, (1.0 - kMomentum) * running_mean[c]);
    expected_mean.Add(c, kMomentum * batch_mean[c]);
    expected_variance.Add(c, (1.0 - kMomentum) * running_variance[c]);
    expected_variance.Add(c, kMomentum * batch_variance[c] * kRows / (kRows - 1));
  }
  EXPECT_TRUE(Agrees(expected_mean, mean, 4));
  EXPECT_TRUE(Agrees(expected_variance, variance, 4));
}

// Also forward and backward of gradients that a thread may add up row by row.
TEST_P(KernelsSuite, LayerNorm) {
  for (const Case& c : kCases) {
    SCOPED_TRACE(Named(c));
    const Input x = Normal({c.rows, c.width}, 1.5, 2);
    const Input scale = Normal({c.width}, 1), shift = Normal({c.width});
    Tensor y = Output(x.shape);
    Tensor mean = Output({c.rows}, DType::kF32), inverse = Output({c.rows}, DType::kF32);
    kernels().LayerNorm(x.tensor, scale.tensor, shift.tensor, kEpsilon, y, mean, inverse);
    const reference::Normalized expected = reference::LayerNorm(x, scale, shift, kEpsilon);
    EXPECT_TRUE(Agrees(expected.mean, mean, kRoundings));
    EXPECT_TRUE(Agrees(expected.spread, inverse, kRoundings));
    EXPECT_TRUE(Agrees(expected.y, y, kRoundings));

    const Input dy = Normal(x.shape), dscale_start = Normal({c.width}),
                dshift_start = Normal({c.width});
    const reference::NormalizationGradients gradients =
        reference::LayerNormBackward(x, scale, kEpsilon, dy);
    const Tensor exact_mean = Given(expected.mean, DType::kF32).tensor;
    const Tensor exact_inverse = Given(expected.spread, DType::kF32).tensor;
    for (const Input& residual : {Input(), Normal(x.shape)}) {
      reference::Result expected_dx = gradients.dx;
      if (residual.defined()) expected_dx.Add(residual);
      for (const GradientMode& mode : GradientModes()) {
        Tensor dx = Output(x.shape);
        Tensor dscale = Target(mode, dscale_start), dshift = Target(mode, dshift_start);
        kernels().LayerNormBackward(x.tensor, scale.tensor, exact_mean, exact_inverse, dy.tensor,
                                    residual.tensor, dx, mode.write, dscale, dshift);
        EXPECT_TRUE(Agrees(expected_dx, dx, kRoundings));
        EXPECT_TRUE(Agrees(gradients.dscale, mode, dscale_start, dscale, SumRoundings(c.rows)));
        EXPECT_TRUE(Agrees(gradients.dshift, mode, dshift_start, dshift, SumRoundings(c.rows)));
      }
      if (!residual.defined()) continue;
      Tensor in_place = Given(residual).tensor;
      kernels().LayerNormBackward(x.tensor, scale.tensor, exact_mean, exact_inverse, dy.tensor,
                                  in_place, in_place, Write::kOverwrite, Tensor(), Tensor());
      EXPECT_TRUE(Agrees(expected_dx, in_place, kRoundings));
    }
  }
}

TEST_P(KernelsSuite, LayerNormVarianceDoesNotCancel) {
  const Input x = Normal({5, 300}, 3000), one = Normal({300});
  Tensor y = Output(x.shape);
  Tensor mean = Output({5}, DType::kF32), inverse = Output({5}, DType::kF32);
  kernels().LayerNorm(x.tensor, one.tensor, one.tensor, 1e-5f, y, mean, inverse);
  // Differences to a mean that is itself rounded at 3000.
  const reference::Normalized expected = reference::LayerNorm(x, one, one, 1e-5);
  EXPECT_TRUE(Agrees(expected.mean, mean, kRoundings));
  EXPECT_TRUE(Agrees(expected.spread, inverse, kRoundings));
}

TEST_P(KernelsSuite, RmsNorm) {
  for (const Case& c : kCases) {
    SCOPED_TRACE(Named(c));
    const Input x = Normal({c.rows, c.width}, 1.5, 2), scale = Normal({c.width}, 1);
    Tensor y = Output(x.shape), inverse = Output({c.rows}, DType::kF32);
    kernels().RmsNorm(x.tensor, scale.tensor, kEpsilon, y, inverse);
    const reference::Normalized expected = reference::RmsNorm(x, scale, kEpsilon);
    const double roundings = SumRoundings(c.width);
    EXPECT_TRUE(Agrees(expected.spread, inverse, roundings));
    EXPECT_TRUE(Agrees(expected.y, y, roundings));

    const Input dy = Normal(x.shape), dscale_start = Normal({c.width});
    const reference::NormalizationGradients gradients =
        reference::RmsNormBackward(x, scale, kEpsilon, dy);
    const Tensor exact_inverse = Given(expected.spread, DType::kF32).tensor;
    for (const Input& residual : {Input(), Normal(x.shape)}) {
      reference::Result expected_dx = gradients.dx;
      if (residual.defined()) expected_dx.Add(residual);
      for (const GradientMode& mode : GradientModes()) {
        Tensor dx = Output(x.shape), dscale = Target(mode, dscale_start);
        kernels().RmsNormBackward(x.tensor, scale.tensor, exact_inverse, dy.tensor, residual.tensor,
                                  dx, mode.write, dscale);
        EXPECT_TRUE(Agrees(expected_dx, dx, roundings));
        EXPECT_TRUE(Agrees(gradients.dscale, mode, dscale_start, dscale, SumRoundings(c.rows)));
      }
      if (!residual.defined()) continue;
      Tensor in_place = Given(residual).tensor;
      kernels().RmsNormBackward(x.tensor, scale.tensor, exact_inverse, dy.tensor, in_place,
                                in_place, Write::kOverwrite, Tensor());
      EXPECT_TRUE(Agrees(expected_dx, in_place, roundings));
    }
  }
}

TEST_P(KernelsSuite, NormalisationsRepeatTheirBits) {
  const Input x = Normal({1200, 100}, 1), dy = Normal(x.shape), scale = Normal({100});
  std::vector<std::vector<float>> first;
  for (int round = 0; round < 2; ++round) {
    std::vector<Tensor> out;
    const auto output = [&](const Shape& shape) { return out.emplace_back(Output(shape)); };
    const auto statistics = [&](int64_t count) {
      return out.emplace_back(Output({count}, DType::kF32));
    };
    const Tensor y = output(x.shape), mean = statistics(100), variance = statistics(100);
    const Tensor kept = kernels().BatchNorm(x.tensor, scale.tensor, scale.tensor, dy.tensor,
                                            kEpsilon, Activation::kRelu, y, mean, variance);
    const Tensor dx = output(x.shape), dscale = output({100}), dshift = output({100});
    kernels().BatchNormBackward(x.tensor, scale.tensor, mean, variance, kept, kEpsilon, y,
                                dy.tensor, dx, Tensor(), Write::kOverwrite, dscale, dshift);
    const Tensor layer_y = output(x.shape), row_mean = statistics(1200), inverse = statistics(1200);
    kernels().LayerNorm(x.tensor, scale.tensor, scale.tensor, kEpsilon, layer_y, row_mean, inverse);
    const Tensor layer_dx = output(x.shape), layer_dscale = output({100}),
                 layer_dshift = output({100});
    kernels().LayerNormBackward(x.tensor, scale.tensor, row_mean, inverse, dy.tensor, Tensor(),
                                layer_dx, Write::kOverwrite, layer_dscale, layer_dshift);
    for (size_t i = 0; i < out.size(); ++i) {
      if (round == 0) first.push_back(Download(out[i]));
      EXPECT_TRUE(SameBits(first[i], Download(out[i]))) << i;
    }
  }
}

}  // namespace
}  // namespace lockstep
