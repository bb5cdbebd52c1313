#include "core/nn/layers.h"

#include <cmath>
#include <string>
#include <utility>
#include <vector>

#include "core/autograd/testing/arrays.h"
#include "core/base/philox.h"
#include "core/kernels/cpu/cpu_kernels.h"
#include "gtest/gtest.h"

namespace lockstep {
namespace {

using reference::Array;

constexpr double kEpsilon = 1e-5;
constexpr double kTolerance = 1e-5;  // relative to the largest element; see operations_test.cc

class LayersTest : public testing::Test {
 protected:
  void Start(const Module& module) {
    Materialize(module.Parameters(), 1, kernels_);
    Materialize(module.Statistics(), kernels_);
  }
  // Random values in place of initial ones that are all alike.
  Array Randomize(const Tensor& tensor, uint64_t stream) {
    const Array values = RandomArray(tensor.shape(), stream);
    kernels_.Copy(Upload(kernels_, values), tensor);
    return values;
  }
  static void ExpectInit(const Parameter& parameter, Init::Kind kind, double value) {
    EXPECT_EQ(parameter.init.kind, kind) << parameter.name;
    EXPECT_FLOAT_EQ(parameter.init.value, static_cast<float>(value)) << parameter.name;
  }

  CpuAllocator allocator_;
  CpuKernels kernels_{allocator_};
  Tape tape_{kernels_};
  Pass train_{.tape = tape_}, evaluate_{.tape = tape_, .mode = Pass::Mode::kEvaluate};
};

TEST_F(LayersTest, LinearStartsAsPyTorchHasItUnlessToldOtherwise) {
  LinearLayer plain("plain", 25, 3);
  EXPECT_EQ(plain.weight().shape, (Shape{3, 25}));
  EXPECT_EQ(plain.bias()->shape, Shape{3});
  ExpectInit(plain.weight(), Init::Kind::kUniform, 0.2);
  ExpectInit(*plain.bias(), Init::Kind::kUniform, 0.2);

  const Init init = Init::Normal(0.02f);
  LinearLayer told("told", 25, 3, {.weight_init = &init});
  ExpectInit(told.weight(), Init::Kind::kNormal, 0.02);
  ExpectInit(*told.bias(), Init::Kind::kConstant, 0);

  LinearLayer bare("bare", 25, 3, {.bias = Bias::kNo});
  EXPECT_EQ(bare.bias(), nullptr);
  EXPECT_EQ(bare.Parameters().size(), 1u);
}

TEST_F(LayersTest, LinearAddsBiasAndResidual) {
  LinearLayer layer("layer", 5, 3);
  Start(layer);
  const Array x = RandomArray({4, 5}, 1), residual = RandomArray({4, 3}, 2);
  const Variable added(Upload(kernels_, residual));
  const Variable y = layer(train_, Variable(Upload(kernels_, x)), &added);
  const Array w = Download(kernels_, layer.weight().value);
  const Array b = Download(kernels_, layer.bias()->value);
  EXPECT_TRUE(
      IsNear(reference::Linear(x, w, b, residual), Download(kernels_, y.value), kTolerance));
}

TEST_F(LayersTest, ConvolutionStartsNormalByFanOut) {
  const Window window = {.kernel = 3, .stride = 2, .padding = 1};
  ConvolutionLayer layer("layer", 4, 8, window);
  Start(layer);
  ASSERT_EQ(layer.Parameters().size(), 1u);
  const Parameter& weight = *layer.Parameters()[0];
  EXPECT_EQ(weight.shape, (Shape{8, 3, 3, 4}));
  ExpectInit(weight, Init::Kind::kNormal, std::sqrt(2.0 / (8 * 9)));
  const Array x = RandomArray({2, 5, 5, 4}, 1);
  const Variable y = layer(train_, Variable(Upload(kernels_, x)));
  EXPECT_TRUE(IsNear(reference::Convolution(x, Download(kernels_, weight.value), Array(), window),
                     Download(kernels_, y.value), kTolerance));
}

TEST_F(LayersTest, EmbeddingStartsAsTold) {
  EmbeddingLayer layer("token", 7, 3, Init::Normal(0.02f));
  EXPECT_EQ(layer.weight().name, "token.weight");
  EXPECT_EQ(layer.weight().shape, (Shape{7, 3}));
  ExpectInit(layer.weight(), Init::Kind::kNormal, 0.02);
}

class BatchNormLayerTest : public LayersTest {
 protected:
  void StartRandom(BatchNormLayer& layer) {
    Start(layer);
    scale_ = Randomize(layer.Parameters()[0]->value, 1);
    shift_ = Randomize(layer.Parameters()[1]->value, 2);
    statistics_ = layer.Statistics()[0];
  }

  const Array x_ = RandomArray({3, 2, 2, 4}, 3), residual_ = RandomArray({3, 2, 2, 4}, 4);
  Array scale_, shift_;
  RunningStatistics* statistics_ = nullptr;
};

TEST_F(BatchNormLayerTest, StartsAsTheIdentity) {
  BatchNormLayer layer("norm", 4, Activation::kNone);
  ExpectInit(*layer.Parameters()[0], Init::Kind::kConstant, 1);
  ExpectInit(*layer.Parameters()[1], Init::Kind::kConstant, 0);
  EXPECT_EQ(layer.Statistics()[0]->momentum, 0.1f);
  EXPECT_EQ(layer.Statistics()[0]->name, "norm");
}

TEST_F(BatchNormLayerTest, TrainsWithTheStatisticsOfTheBatchAndGathersThem) {
  for (Activation activation : {Activation::kNone, Activation::kRelu}) {
    BatchNormLayer layer("norm", 4, activation);
    StartRandom(layer);
    const Variable residual(Upload(kernels_, residual_));
    const Variable y = layer(train_, Variable(Upload(kernels_, x_)), &residual);
    const reference::Normalized expected =
        reference::BatchNorm(x_, scale_, shift_, residual_, kEpsilon, activation);
    EXPECT_TRUE(IsNear(expected.y, Download(kernels_, y.value), kTolerance));
    EXPECT_EQ(statistics_->rows, 12);
    const Array sums = Download(kernels_, statistics_->sums);
    for (int64_t c = 0; c < 4; ++c) {
      EXPECT_NEAR(sums[c], expected.mean[c], 1e-6);
      EXPECT_NEAR(sums[4 + c], expected.spread[c], 1e-6);
      EXPECT_NEAR(sums[8 + c], expected.mean[c] * expected.mean[c], 1e-6);
    }
    for (float value : statistics_->mean.span<float>()) EXPECT_EQ(value, 0);
  }
}

TEST_F(BatchNormLayerTest, EvaluatesWithTheRunningEstimateAndLeavesItAlone) {
  for (Activation activation : {Activation::kNone, Activation::kRelu}) {
    BatchNormLayer layer("norm", 4, activation);
    StartRandom(layer);
    const Array mean = Randomize(statistics_->mean, 5);
    Array variance = RandomArray({4}, 6);
    for (double& v : variance.value) v = static_cast<float>(v * v + 0.5);
    kernels_.Copy(Upload(kernels_, variance), statistics_->variance);
    const Array sums = Randomize(statistics_->sums, 7);

    const Variable residual(Upload(kernels_, residual_));
    const Variable y = layer(evaluate_, Variable(Upload(kernels_, x_)), &residual);
    EXPECT_TRUE(IsNear(reference::BatchNormInference(x_, scale_, shift_, residual_, mean, variance,
                                                     kEpsilon, activation),
                       Download(kernels_, y.value), kTolerance));
    EXPECT_FALSE(y.needs_gradient());
    EXPECT_TRUE(SameBits(mean, Download(kernels_, statistics_->mean)));
    EXPECT_TRUE(SameBits(variance, Download(kernels_, statistics_->variance)));
    EXPECT_TRUE(SameBits(sums, Download(kernels_, statistics_->sums)));
    EXPECT_EQ(statistics_->rows, 0);
  }
}

TEST_F(LayersTest, LayerNormIsTheSameInTrainingAndEvaluation) {
  LayerNormLayer layer("norm", 6);
  ExpectInit(*layer.Parameters()[0], Init::Kind::kConstant, 1);
  ExpectInit(*layer.Parameters()[1], Init::Kind::kConstant, 0);
  Start(layer);
  const Array scale = Randomize(layer.Parameters()[0]->value, 1);
  const Array shift = Randomize(layer.Parameters()[1]->value, 2);
  const Array x = RandomArray({2, 3, 6}, 3);
  const Array trained = Download(kernels_, layer(train_, Variable(Upload(kernels_, x))).value);
  EXPECT_TRUE(IsNear(reference::LayerNorm(x, scale, shift, kEpsilon).y, trained, kTolerance));
  EXPECT_TRUE(
      SameBits(trained, Download(kernels_, layer(evaluate_, Variable(Upload(kernels_, x))).value)));
}

class DropoutAtTest : public LayersTest {
 protected:
  static constexpr float kProbability = 0.25f;

  Array Mask(const Pass& pass, const std::string& layer) {
    const Tensor ones = kernels_.Empty({1000}), kept = kernels_.Empty({1000});
    kernels_.Fill(ones, 1);
    kernels_.ApplyDropout(DropoutAt(pass, layer, kProbability), 0, ones, kept);
    return Download(kernels_, kept);
  }
};

TEST_F(DropoutAtTest, DependsOnSeedLayerStepAndMicroBatch) {
  const std::vector<Array> masks = {
      Mask({.tape = tape_, .seed = 1, .step = 2, .micro_batch = 3}, "a"),
      Mask({.tape = tape_, .seed = 9, .step = 2, .micro_batch = 3}, "a"),
      Mask({.tape = tape_, .seed = 1, .step = 9, .micro_batch = 3}, "a"),
      Mask({.tape = tape_, .seed = 1, .step = 2, .micro_batch = 9}, "a"),
      Mask({.tape = tape_, .seed = 1, .step = 3, .micro_batch = 2}, "a"),
      Mask({.tape = tape_, .seed = 1, .step = 2, .micro_batch = 3}, "b"),
  };
  for (size_t i = 0; i < masks.size(); ++i) {
    for (size_t j = 0; j < i; ++j) {
      // Independent masks differ in 2 p (1 - p) = 37.5 % of the places; five standard errors: 7.7
      // %.
      int64_t different = 0;
      for (int64_t e = 0; e < 1000; ++e) different += masks[i][e] != masks[j][e];
      EXPECT_NEAR(static_cast<double>(different), 375, 77) << i << " " << j;
    }
  }
  EXPECT_TRUE(
      SameBits(masks[0], Mask({.tape = tape_, .seed = 1, .step = 2, .micro_batch = 3}, "a")));
}

// The rule that a shard or a recompute relies on, spelled out.
TEST_F(DropoutAtTest, MasksAreDrawnByLogicalIndex) {
  const Array mask = Mask({.tape = tape_, .seed = 7, .step = 5, .micro_batch = 6}, "blocks.0");
  const Philox philox(PhiloxKey(7, "dropout", "blocks.0"));
  for (int64_t i = 0; i < mask.elements(); ++i) {
    const bool kept = philox.Uniform(i, (uint64_t{5} << 32) + 6) >= kProbability;
    EXPECT_FLOAT_EQ(static_cast<float>(mask[i]), kept ? 1 / (1 - kProbability) : 0) << i;
  }
}

TEST_F(DropoutAtTest, ThereIsNoneInEvaluationOrWithoutAProbability) {
  EXPECT_EQ(DropoutAt(evaluate_, "a", kProbability).probability, 0);
  EXPECT_EQ(DropoutAt(train_, "a", 0).probability, 0);
  EXPECT_EQ(DropoutAt(train_, "a", kProbability).probability, kProbability);
}

}  // namespace
}  // namespace lockstep
