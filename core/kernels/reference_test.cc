// The references against central differences, and against values that need no program.

#include "core/kernels/reference.h"

#include <array>
#include <cmath>
#include <functional>
#include <numeric>
#include <vector>

#include "core/base/philox.h"
#include "gtest/gtest.h"

namespace lockstep::reference {
namespace {

Array Random(const Shape& shape, uint64_t key) {
  Array x(shape);
  for (int64_t i = 0; i < x.elements(); ++i) x.value[i] = Philox(key).Normal(i);
  return x;
}

double Dot(const Array& a, const Array& b) {
  return std::inner_product(a.value.begin(), a.value.end(), b.value.begin(), 0.0);
}

using Forward = std::function<Array(const Array&)>;

// `dx` must be the gradient of <dy, forward(x)> at x.
void ExpectGradient(const Forward& forward, Array x, const Array& dy, const Array& dx) {
  ASSERT_EQ(x.shape, dx.shape);
  constexpr double kStep = 1e-5;
  for (int64_t i = 0; i < x.elements(); ++i) {
    const double at = x[i];
    x.value[i] = at + kStep;
    const double above = Dot(forward(x), dy);
    x.value[i] = at - kStep;
    const double below = Dot(forward(x), dy);
    x.value[i] = at;
    EXPECT_NEAR(dx[i], (above - below) / (2 * kStep), 1e-7 * (1 + std::abs(dx[i]))) << i;
  }
}

TEST(ReferenceTest, GeluIsXTimesTheNormalDistributionApproximately) {
  const Array x(Shape{5}, {-3, -0.5, 0, 1, 4});
  const Array y = Gelu(x);
  for (int64_t i = 0; i < 5; ++i) {
    EXPECT_NEAR(y[i], x[i] * 0.5 * std::erfc(-x[i] / std::sqrt(2)), 5e-4);
  }
  EXPECT_NEAR(y[3], 0.8411919906, 1e-9);  // published for the tanh form
}

TEST(ReferenceTest, GeluGradients) {
  const Array x = Random({20}, 1), dy = Random({20}, 2);
  ExpectGradient(Gelu, x, dy, GeluBackward(x, dy));
}

TEST(ReferenceTest, MatMulByHand) {
  const Array a(Shape{2, 3}, {1, 2, 3, 4, 5, 6}), b(Shape{3, 1}, {10, 20, 30});
  const Array a_transposed(Shape{3, 2}, {1, 4, 2, 5, 3, 6}), b_transposed(Shape{1, 3}, b.value);
  const std::vector<double> expected = {140, 320};
  const auto no = Transpose::kNo, yes = Transpose::kYes;
  EXPECT_EQ(MatMul(a, no, b, no).value, expected);
  EXPECT_EQ(MatMul(a_transposed, yes, b, no).value, expected);
  EXPECT_EQ(MatMul(a, no, b_transposed, yes).value, expected);
  EXPECT_EQ(MatMul(a_transposed, yes, b_transposed, yes).value, expected);
  EXPECT_EQ(MatMul(a, no, b, no).magnitude, expected);
}

TEST(ReferenceTest, LinearGradients) {
  const Array x = Random({4, 3}, 1), w = Random({5, 3}, 2), bias = Random({5}, 3);
  const Array dy = Random({4, 5}, 4);
  const reference::LinearGradients gradients = LinearBackward(dy, x, w);
  ExpectGradient([&](const Array& v) { return Linear(v, w, bias, dy); }, x, dy, gradients.dx);
  ExpectGradient([&](const Array& v) { return Linear(x, v, bias, dy); }, w, dy, gradients.dw);
  ExpectGradient([&](const Array& v) { return Linear(x, w, v, dy); }, bias, dy, gradients.dbias);
}

TEST(ReferenceTest, GeluMlpGradients) {
  const Array x = Random({4, 3}, 1), up = Random({6, 3}, 2), up_bias = Random({6}, 3);
  const Array down = Random({3, 6}, 4), down_bias = Random({3}, 5), residual = Random({4, 3}, 6);
  const Array dy = Random({4, 3}, 7);
  const auto run = [&](const Array& a, const Array& b, const Array& c, const Array& d,
                       const Array& e) { return GeluMlpForward(a, b, c, d, e, residual); };
  const reference::GeluMlpGradients gradients =
      GeluMlpBackward(x, run(x, up, up_bias, down, down_bias).pre, up, down, dy);
  ExpectGradient([&](const Array& v) { return run(v, up, up_bias, down, down_bias).y; }, x, dy,
                 gradients.x);
  ExpectGradient([&](const Array& v) { return run(x, v, up_bias, down, down_bias).y; }, up, dy,
                 gradients.up);
  ExpectGradient([&](const Array& v) { return run(x, up, v, down, down_bias).y; }, up_bias, dy,
                 gradients.up_bias);
  ExpectGradient([&](const Array& v) { return run(x, up, up_bias, v, down_bias).y; }, down, dy,
                 gradients.down);
  ExpectGradient([&](const Array& v) { return run(x, up, up_bias, down, v).y; }, down_bias, dy,
                 gradients.down_bias);
}

TEST(ReferenceTest, ConvolutionByHand) {
  // An image 1 2 3 / 4 5 6 and a window that takes the pixel at its right, tap (1, 2).
  const Array x(Shape{1, 2, 3, 1}, {1, 2, 3, 4, 5, 6});
  Array w(Shape{1, 3, 3, 1});
  w.value[5] = 1;
  EXPECT_EQ(Convolution(x, w, Array(), {3, 1, 1}).value, (std::vector<double>{2, 3, 0, 5, 6, 0}));
  EXPECT_EQ(Convolution(x, w, Array(), {3, 2, 1}).value, (std::vector<double>{2, 0}));
}

TEST(ReferenceTest, ConvolutionGradients) {
  for (const Window& window : {Window{3, 1, 1}, Window{3, 2, 1}, Window{1, 2, 0}}) {
    const Array x = Random({2, 5, 4, 3}, 1), bias = Random({2}, 3);
    const Array w = Random({2, window.kernel, window.kernel, 3}, 2);
    const Array dy = Random(Convolution(x, w, bias, window).shape, 4);
    const ConvolutionGradients gradients = ConvolutionBackward(dy, x, w, window);
    ExpectGradient([&](const Array& v) { return Convolution(v, w, bias, window); }, x, dy,
                   gradients.dx);
    ExpectGradient([&](const Array& v) { return Convolution(x, v, bias, window); }, w, dy,
                   gradients.dw);
    ExpectGradient([&](const Array& v) { return Convolution(x, w, v, window); }, bias, dy,
                   gradients.dbias);
  }
}

TEST(ReferenceTest, Pooling) {
  const Array x(Shape{1, 2, 3, 1}, {-1, -2, -3, -4, -5, -6});
  EXPECT_EQ(MaxPool(x, {3, 2, 1}).value, (std::vector<double>{-1, -2}));
  EXPECT_EQ(MaxPoolBackward(Array(x.shape), {2, 1, 0}, Array(Shape{1, 1, 2, 1}, {1, 2})).value,
            (std::vector<double>{1, 2, 0, 0, 0, 0}));
  EXPECT_EQ(GlobalAveragePool(x).value, std::vector<double>{-3.5});
  const auto maxima = [](const Array& v) { return MaxPool(v, {3, 2, 1}); };
  const Array large = Random({2, 5, 4, 3}, 1), slopes = Random(maxima(large).shape, 2);
  ExpectGradient(maxima, large, slopes, MaxPoolBackward(large, {3, 2, 1}, slopes));
  const Array wide = Random({2, 3, 2, 3}, 1), dy = Random({2, 3}, 2);
  ExpectGradient(GlobalAveragePool, wide, dy, GlobalAveragePoolBackward(dy, wide.shape));
}

TEST(ReferenceTest, Upsample) {
  const Array x({2, 1, 2, 1}, {1, 2, 3, 4});
  EXPECT_EQ(Upsample(x).value,
            (std::vector<double>{1, 1, 2, 2, 1, 1, 2, 2, 3, 3, 4, 4, 3, 3, 4, 4}));
  const Array wide = Random({2, 3, 2, 3}, 1), dy = Random({2, 6, 4, 3}, 2);
  ExpectGradient(Upsample, wide, dy, UpsampleBackward(dy));
}

TEST(ReferenceTest, Concatenate) {
  const Array a({2, 1}, {1, 2}), b({2, 2}, {3, 4, 5, 6});
  EXPECT_EQ(Concatenate(a, b).value, (std::vector<double>{1, 3, 4, 2, 5, 6}));
}

TEST(ReferenceTest, BatchNormGradients) {
  const Array x = Random({2, 3, 2, 4}, 1), scale = Random({4}, 2), shift = Random({4}, 3);
  const Array residual = Random(x.shape, 4), dy = Random(x.shape, 5);
  constexpr double kEpsilon = 0.1;
  for (Activation activation : {Activation::kNone, Activation::kRelu}) {
    const auto run = [&](const Array& a, const Array& b, const Array& c, const Array& d) {
      return BatchNorm(a, b, c, d, kEpsilon, activation).y;
    };
    const Array y = activation == Activation::kRelu ? run(x, scale, shift, residual) : Array();
    const NormalizationGradients gradients = BatchNormBackward(x, scale, kEpsilon, y, dy);
    ExpectGradient([&](const Array& v) { return run(v, scale, shift, residual); }, x, dy,
                   gradients.dx);
    ExpectGradient([&](const Array& v) { return run(x, v, shift, residual); }, scale, dy,
                   gradients.dscale);
    ExpectGradient([&](const Array& v) { return run(x, scale, v, residual); }, shift, dy,
                   gradients.dshift);
    ExpectGradient([&](const Array& v) { return run(x, scale, shift, v); }, residual, dy,
                   gradients.dresidual);
  }
}

TEST(ReferenceTest, BatchNormStatistics) {
  const Array x(Shape{4, 1}, {1, 2, 3, 6}), one(Shape{1}, {1}), none(Shape{1}, {0});
  const Normalized result = BatchNorm(x, one, none, Array(), 0, Activation::kNone);
  EXPECT_EQ(result.mean[0], 3);
  EXPECT_EQ(result.spread[0], 3.5);
  const Array y =
      BatchNormInference(x, one, none, Array(), result.mean, result.spread, 0, Activation::kNone);
  EXPECT_EQ(y.value, result.y.value);
}

TEST(ReferenceTest, LayerNormGradients) {
  const Array x = Random({3, 5}, 1), scale = Random({5}, 2), shift = Random({5}, 3);
  const Array dy = Random(x.shape, 5);
  constexpr double kEpsilon = 0.1;
  const NormalizationGradients gradients = LayerNormBackward(x, scale, kEpsilon, dy);
  ExpectGradient([&](const Array& v) { return LayerNorm(v, scale, shift, kEpsilon).y; }, x, dy,
                 gradients.dx);
  ExpectGradient([&](const Array& v) { return LayerNorm(x, v, shift, kEpsilon).y; }, scale, dy,
                 gradients.dscale);
  ExpectGradient([&](const Array& v) { return LayerNorm(x, scale, v, kEpsilon).y; }, shift, dy,
                 gradients.dshift);
}

TEST(ReferenceTest, RmsNormGradients) {
  const Array x = Random({3, 5}, 1), scale = Random({5}, 2), dy = Random(x.shape, 5);
  constexpr double kEpsilon = 0.1;
  const NormalizationGradients gradients = RmsNormBackward(x, scale, kEpsilon, dy);
  ExpectGradient([&](const Array& v) { return RmsNorm(v, scale, kEpsilon).y; }, x, dy,
                 gradients.dx);
  ExpectGradient([&](const Array& v) { return RmsNorm(x, v, kEpsilon).y; }, scale, dy,
                 gradients.dscale);
  // Rows of one magnitude have that root mean square.
  const Array one(Shape{2}, {1, 1}), row(Shape{1, 2}, {3, -3});
  EXPECT_NEAR(RmsNorm(row, one, 0).y[1], -1, 1e-12);
}

TEST(ReferenceTest, SwiGluGradients) {
  const Array x = Random({3, 8}, 1), dy = Random({3, 4}, 2);
  ExpectGradient([](const Array& v) { return SwiGlu(v); }, x, dy, SwiGluBackward(x, dy));
  EXPECT_NEAR(SwiGlu(Array(Shape{1, 2}, {1, 3}))[0], 3 / (1 + std::exp(-1.0)), 1e-12);
}

// A quarter of a turn in the first plane, none in the second; the further column stays.
TEST(ReferenceTest, RotationTurnsPlanes) {
  const Rotation rotation = {.heads = 1, .head_width = 4};
  const Array table(Shape{2, 4}, {1, 1, 0, 0, 0, 1, 1, 0});
  const Array x(Shape{2, 5}, {1, 2, 3, 4, 5, 1, 2, 3, 4, 5});
  EXPECT_EQ(Rotate(rotation, x, {0, 1}, table).value,
            std::vector<double>({1, 2, 3, 4, 5, -3, 2, 1, 4, 5}));
}

TEST(ReferenceTest, RotationGradients) {
  Rotation rotation = {.heads = 2, .head_width = 6};
  const Array x = Random({3, 15}, 1), dy = Random(x.shape, 2), table = Random({7, 6}, 3);
  const std::vector<int32_t> positions = {4, 0, 6};
  const auto forward = [&](const Array& v) { return Rotate(rotation, v, positions, table); };
  Rotation back = rotation;
  back.direction = Rotation::Direction::kBackward;
  ExpectGradient(forward, x, dy, Rotate(back, dy, positions, table));
}

// Two of four experts, ranked by hand; a bias changes the choice and no score.
TEST(ReferenceTest, RoutesToTheBest) {
  Routing routing = {.experts = 4, .chosen = 2};
  const double third = std::log(3.0);
  const Array logits(Shape{2, 4}, {0, third, 0, third, -third, 0, 0, -third});
  const Routed softmax = Route(routing, logits, Array());
  EXPECT_EQ(softmax.chosen, std::vector<int32_t>({1, 3, 1, 2}));
  EXPECT_NEAR(softmax.weights[0], 0.5, 1e-15);
  EXPECT_NEAR(softmax.margin, 0, 1e-15);
  routing.scores = Routing::Scores::kSigmoid;
  routing.scaling = 2;
  // Scores 1/2, 3/4, 1/2, 3/4 and 1/4, 1/2, 1/2, 1/4.
  const Routed sigmoid = Route(routing, logits, Array(Shape{4}, {1, 0, 0, 0}));
  EXPECT_EQ(sigmoid.chosen, std::vector<int32_t>({0, 1, 0, 1}));
  EXPECT_NEAR(sigmoid.weights[0], 2 * 0.5 / 1.25, 1e-15);
  EXPECT_NEAR(sigmoid.weights[3], 2 * 0.5 / 0.75, 1e-15);
}

TEST(ReferenceTest, RoutingGradients) {
  const Array logits = Random({5, 6}, 1), bias = Random({6}, 2), dy = Random({5, 3}, 3);
  const Array balance = Random({6}, 4);
  for (const auto scores : {Routing::Scores::kSoftmax, Routing::Scores::kSigmoid}) {
    const Routing routing = {.experts = 6, .chosen = 3, .scores = scores, .scaling = 1.5f};
    const Routed routed = Route(routing, logits, bias);
    ASSERT_GT(routed.margin, 1e-3);
    ExpectGradient([&](const Array& v) { return Route(routing, v, bias).weights; }, logits, dy,
                   RouteBackward(routing, logits, routed.chosen, dy, Array()));
    const Array none(dy.shape);
    Array each_row(logits.shape);
    for (int64_t i = 0; i < 30; ++i) each_row.value[i] = balance[i % 6];
    ExpectGradient([&](const Array& v) { return NormalizedScores(routing, v); }, logits, each_row,
                   RouteBackward(routing, logits, routed.chosen, none, balance));
  }
}

TEST(ReferenceTest, CombiningGradients) {
  const Array x = Random({5, 4}, 1), weights = Random({3, 2}, 2), residual = Random({3, 4}, 3);
  const Array dy = Random({3, 4}, 4);
  const std::vector<int32_t> places = {3, 0, -1, 4, 1, -1};
  const CombineGradients gradients = CombineRowsBackward(dy, x, places, weights);
  const auto combine = [&](const Array& from, const Array& by) {
    return CombineRows(from, places, by, residual, 3);
  };
  ExpectGradient([&](const Array& v) { return combine(v, weights); }, x, dy, gradients.dx);
  ExpectGradient([&](const Array& v) { return combine(x, v); }, weights, dy, gradients.dweights);
  EXPECT_EQ(CombineRows(x, places, Array(), Array(), 3)[4], x[16]);
}

TEST(ReferenceTest, EmbeddingGradients) {
  const std::vector<int32_t> ids = {2, 0, 2};
  const Array table = Random({4, 3}, 1), dy = Random({3, 3}, 2);
  ExpectGradient([&](const Array& v) { return Embedding(ids, v); }, table, dy,
                 EmbeddingBackward(ids, dy, table.shape));
  const Array x = Random({2, 3, 2}, 3), positions = Random({5, 2}, 4), slope = Random(x.shape, 5);
  ExpectGradient([&](const Array& v) { return AddPositions(x, v); }, positions, slope,
                 AddPositionsBackward(slope, positions.shape));
}

TEST(ReferenceTest, AttentionAveragesWhereKeysAreEqual) {
  const Attention attention{.heads = 1, .head_width = 1, .dropout = {}};
  // (query, key, value) of three time steps.
  const Array qkv(Shape{1, 3, 3}, {5, 1, 3, 6, 1, 6, 7, 1, 0});
  const Attended result = AttentionForward(attention, qkv);
  EXPECT_NEAR(result.y[0], 3, 1e-12);
  EXPECT_NEAR(result.y[1], 4.5, 1e-12);
  EXPECT_NEAR(result.y[2], 3, 1e-12);
  EXPECT_NEAR(result.log_sum_exp[2], 7 + std::log(3), 1e-12);
}

TEST(ReferenceTest, AttentionGradients) {
  for (float probability : {0.0f, 0.4f}) {
    const Attention attention{.heads = 2,
                              .head_width = 3,
                              .dropout = {.probability = probability, .key = 7, .counter = 9},
                              .total_heads = 5,
                              .first_head = 2};
    const Array qkv = Random({2, 4, 18}, 1), dy = Random({2, 4, 6}, 2);
    ExpectGradient([&](const Array& v) { return AttentionForward(attention, v).y; }, qkv, dy,
                   AttentionBackward(attention, qkv, dy));
  }
}

// Zero logits: a query averages the values of the keys at its position and before.
TEST(ReferenceTest, AttentionOverTokenLeavesFollowsPositions) {
  const Attention attention{.heads = 1, .head_width = 1, .dropout = {}};
  const std::vector<double> positions = {0, 3, 1, 2};  // two leaves of four tokens
  Array qkv(Shape{2, 2, 3});
  for (size_t t = 0; t < 4; ++t) qkv.value[3 * t + 2] = positions[t];
  const Attended result = AttentionForward(attention, qkv, 2);
  for (size_t t = 0; t < 4; ++t) {
    EXPECT_NEAR(result.y[t], positions[t] / 2, 1e-12);
    EXPECT_NEAR(result.log_sum_exp[t], std::log(positions[t] + 1), 1e-12);
  }
}

// A head of keys and values for two heads of queries computes what two copies of it would, and gets
// the gradients of both.
TEST(ReferenceTest, GroupedAttentionIsThatOfRepeatedKeys) {
  constexpr int64_t kRows = 4, kWidth = 3;
  const Attention grouped{.heads = 4, .head_width = kWidth, .dropout = {}, .key_heads = 2};
  const Attention repeated{.heads = 4, .head_width = kWidth, .dropout = {}};
  // Where each column of repeated projections comes from.
  std::vector<int64_t> sources;
  for (const auto& [first, heads, copies] :
       {std::array<int64_t, 3>{0, 4, 1}, {4, 2, 2}, {6, 2, 2}}) {
    for (int64_t i = 0; i < heads * copies * kWidth; ++i) {
      sources.push_back((first + i / (copies * kWidth)) * kWidth + i % kWidth);
    }
  }
  const Array qkv = Random({1, kRows, 8 * kWidth}, 1), dy = Random({1, kRows, 4 * kWidth}, 2);
  Array copied(Shape{1, kRows, 12 * kWidth}), expected(qkv.shape);
  for (int64_t i = 0; i < copied.elements(); ++i) {
    copied.value[i] = qkv[i / (12 * kWidth) * 8 * kWidth + sources[i % (12 * kWidth)]];
  }
  EXPECT_EQ(AttentionForward(grouped, qkv).y.value, AttentionForward(repeated, copied).y.value);
  const Array gradient = AttentionBackward(repeated, copied, dy);
  for (int64_t i = 0; i < copied.elements(); ++i) {
    expected.value[i / (12 * kWidth) * 8 * kWidth + sources[i % (12 * kWidth)]] += gradient[i];
  }
  const Array actual = AttentionBackward(grouped, qkv, dy);
  for (int64_t i = 0; i < qkv.elements(); ++i) EXPECT_NEAR(actual[i], expected[i], 1e-12) << i;
}

TEST(ReferenceTest, AttentionGradientsOverTokenLeaves) {
  const Attention attention{.heads = 2,
                            .head_width = 3,
                            .dropout = {.probability = 0.4f, .key = 7, .counter = 9},
                            .total_heads = 5,
                            .first_head = 2};
  const Array qkv = Random({4, 4, 18}, 1), dy = Random({4, 4, 6}, 2);
  ExpectGradient([&](const Array& v) { return AttentionForward(attention, v, 2).y; }, qkv, dy,
                 AttentionBackward(attention, qkv, dy, 2));
}

TEST(ReferenceTest, CrossEntropy) {
  const Array equal(Shape{1, 8}, std::vector<double>(8, 500.0));
  EXPECT_NEAR(SoftmaxCrossEntropy(equal, {3}, 1).losses[0], std::log(8), 1e-12);
  const std::vector<int32_t> targets = {2, -1, 0};
  const Array logits = Random({3, 4}, 1), factors(Shape{3}, {0.5, 0.5, 0.5});
  const auto losses = [&](const Array& v) { return SoftmaxCrossEntropy(v, targets, 1).losses; };
  ExpectGradient(losses, logits, factors, SoftmaxCrossEntropy(logits, targets, 0.5).dlogits);
  EXPECT_EQ(losses(logits)[1], 0);
}

TEST(ReferenceTest, AdamWByHand) {
  const Array gradient(Shape{1}, {4});
  Result parameter(Array(Shape{1}, {2}));
  std::array<Result, kMostOptimizerStates> moments = {Result(Shape{1}), Result(Shape{1})};
  const AdamW adamw = {.beta1 = 0.5f, .beta2 = 0.75f, .epsilon = 1};
  OptimizerStep step = {.learning_rate = 0.5f, .weight_decay = 0.5f, .gradient_factor = 0.5f};
  // The gradient is 2. Decay: 2 - 0.5 * 0.5 * 2 = 1.5. Corrected moments 2 and 4.
  UpdateParameter(adamw, step, gradient, parameter, moments);
  EXPECT_DOUBLE_EQ(moments[0][0], 1);
  EXPECT_DOUBLE_EQ(moments[1][0], 1);
  EXPECT_DOUBLE_EQ(parameter[0], 1.5 - 0.5 * 2 / (2 + 1.0));
  // Moments 1.5 and 1.75, their corrections 0.75 and 0.4375.
  step.number = 2;
  const double before = parameter[0];
  UpdateParameter(adamw, step, gradient, parameter, moments);
  EXPECT_DOUBLE_EQ(moments[0][0], 1.5);
  EXPECT_DOUBLE_EQ(moments[1][0], 1.75);
  EXPECT_DOUBLE_EQ(parameter[0], before * 0.75 - 0.5 * 2 / (2 + 1.0));
}

TEST(ReferenceTest, SgdByHand) {
  const Array gradient(Shape{1}, {4});
  const OptimizerStep step = {
      .learning_rate = 0.5f, .weight_decay = 0.25f, .gradient_factor = 0.5f};
  for (bool nesterov : {false, true}) {
    const Sgd sgd = {.momentum = 0.5f, .nesterov = nesterov};
    Result parameter(Array(Shape{1}, {8}));
    std::array<Result, kMostOptimizerStates> buffer = {Result(Shape{1})};
    UpdateParameter(sgd, step, gradient, parameter, buffer);  // slope 0.5 * 4 + 0.25 * 8
    EXPECT_DOUBLE_EQ(buffer[0][0], 4);
    EXPECT_DOUBLE_EQ(parameter[0], nesterov ? 8 - 0.5 * 6 : 8 - 0.5 * 4);
    const double before = parameter[0], slope = 2 + 0.25 * before;
    UpdateParameter(sgd, step, gradient, parameter, buffer);
    EXPECT_DOUBLE_EQ(buffer[0][0], 2 + slope);
    EXPECT_DOUBLE_EQ(parameter[0],
                     before - 0.5 * (nesterov ? slope + 0.5 * (2 + slope) : 2 + slope));
  }
  Result parameter(Array(Shape{1}, {8}));
  std::array<Result, kMostOptimizerStates> none;
  UpdateParameter(Sgd(), {.learning_rate = 0.5f}, gradient, parameter, none);
  EXPECT_DOUBLE_EQ(parameter[0], 6);
}

}  // namespace
}  // namespace lockstep::reference
