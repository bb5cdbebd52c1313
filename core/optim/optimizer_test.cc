#include "core/optim/optimizer.h"

#include <cmath>
#include <cstring>
#include <vector>

#include "core/base/philox.h"
#include "core/kernels/cpu/cpu_kernels.h"
#include "core/optim/gradient_norm.h"
#include "gtest/gtest.h"

namespace lockstep {
namespace {

class OptimizerTest : public ::testing::Test {
 protected:
  Tensor Random(const Shape& shape, uint64_t key, float scale) {
    Tensor t = kernels_.Empty(shape);
    Philox(key).FillNormal({t.data<float>(), static_cast<size_t>(t.elements())}, 0, 0, scale);
    return t;
  }

  CpuAllocator allocator_;
  CpuKernels kernels_{allocator_};
};

TEST_F(OptimizerTest, NormAgreesWithADoubleLoopAndWithAnyCut) {
  Tensor gradient = Random({100003}, 1, 3.0f);
  gradient.data<float>()[17] = 1e4f;  // one large element decides the bins
  double expected = 0;
  for (float g : gradient.span<float>()) expected += static_cast<double>(g) * g;
  const double norm = GradientNorm(kernels_, {{"g", gradient, gradient}});
  EXPECT_NEAR(norm, std::sqrt(expected), 1e-12 * std::sqrt(expected));

  for (int64_t cut : {16, 1600, 99200}) {
    std::vector<TrainedTensor> parts = {
        {"a", gradient, gradient.View(0, {cut})},
        {"b", gradient, gradient.View(cut, {100003 - cut})},
    };
    EXPECT_EQ(GradientNorm(kernels_, parts), norm) << cut;
  }
}

TEST_F(OptimizerTest, NormOfNothingAndOfWhatIsNotFinite) {
  Tensor zero = kernels_.Empty({5});
  kernels_.Fill(zero, 0);
  EXPECT_EQ(GradientNorm(kernels_, {{"z", zero, zero}}), 0);
  zero.data<float>()[3] = std::nanf("");
  EXPECT_TRUE(std::isinf(GradientNorm(kernels_, {{"z", zero, zero}})));
}

TEST_F(OptimizerTest, ClippingScalesDownOnly) {
  EXPECT_EQ(ClipFactor(0.5, 1), 1);
  EXPECT_NEAR(ClipFactor(4, 1), 0.25, 1e-6);
  EXPECT_EQ(ClipFactor(4, 0), 1);
}

// Three steps against the formulas of torch.optim, in double.
TEST_F(OptimizerTest, AdamWDecaysMatricesOnly) {
  Tensor value = Random({8}, 2, 1), gradient = Random({8}, 3, 1);
  for (bool decays : {true, false}) {
    Tensor p = kernels_.Empty({8});
    kernels_.Copy(value, p);
    std::vector<TrainedTensor> trained = {{"p", p, gradient, decays}};
    Optimizer optimizer({.rule = AdamW{.beta2 = 0.99f}, .weight_decay = 0.1f}, kernels_, trained);
    for (int64_t step = 0; step < 3; ++step) optimizer.Step(step, 0.01, 0.5f, trained);
    for (int i = 0; i < 8; ++i) {
      double q = value.data<float>()[i], m = 0, v = 0;
      const double g = gradient.data<float>()[i] * 0.5;
      for (int t = 1; t <= 3; ++t) {
        if (decays) q *= 1 - 0.01 * 0.1;
        m = 0.9 * m + 0.1 * g;
        v = 0.99 * v + 0.01 * g * g;
        q -= 0.01 * (m / (1 - std::pow(0.9, t))) / (std::sqrt(v / (1 - std::pow(0.99, t))) + 1e-8);
      }
      EXPECT_NEAR(p.data<float>()[i], q, 1e-6) << i;
    }
  }
}

TEST_F(OptimizerTest, SgdWithNesterovMomentum) {
  Tensor value = Random({8}, 2, 1), gradient = Random({8}, 3, 1);
  Tensor p = kernels_.Empty({8});
  kernels_.Copy(value, p);
  std::vector<TrainedTensor> trained = {{"p", p, gradient, true}};
  Optimizer optimizer({.rule = Sgd{.momentum = 0.9f, .nesterov = true}, .weight_decay = 0.05f},
                      kernels_, trained);
  for (int64_t step = 0; step < 3; ++step) optimizer.Step(step, 0.1, 1, trained);
  for (int i = 0; i < 8; ++i) {
    double q = value.data<float>()[i], buffer = 0;
    for (int t = 0; t < 3; ++t) {
      const double g = gradient.data<float>()[i] + 0.05 * q;
      buffer = t == 0 ? g : 0.9 * buffer + g;
      q -= 0.1 * (g + 0.9 * buffer);
    }
    EXPECT_NEAR(p.data<float>()[i], q, 1e-6) << i;
  }
}

// Gradients of 16 bits move the fp32 value as their exact values would, and the copy is its
// rounding.
TEST_F(OptimizerTest, MixedPrecision) {
  const Tensor value = Random({300}, 2, 1), gradient = kernels_.Empty({300}, DType::kBF16);
  const Tensor exact_gradient = kernels_.EmptyLike(value);
  kernels_.Cast(Random({300}, 3, 1), gradient);
  kernels_.Cast(gradient, exact_gradient);
  std::vector<OptimizerRule> rules = AllOptimizers();
  rules.push_back(Sgd{.momentum = 0.9f});
  for (const OptimizerRule& rule : rules) {
    const Tensor master = kernels_.EmptyLike(value), expected = kernels_.EmptyLike(value);
    const Tensor copy = kernels_.EmptyLike(gradient), rounded = kernels_.EmptyLike(gradient);
    kernels_.Copy(value, master);
    kernels_.Copy(value, expected);
    const std::vector<TrainedTensor> mixed = {{"p", master, gradient, true, copy}};
    const std::vector<TrainedTensor> exact = {{"p", expected, exact_gradient}};
    const OptimizerOptions options = {.rule = rule, .weight_decay = 0.1f};
    Optimizer mixed_optimizer(options, kernels_, mixed), exact_optimizer(options, kernels_, exact);
    for (int64_t step = 0; step < 3; ++step) {
      mixed_optimizer.Step(step, 0.1, 0.5f, mixed);
      exact_optimizer.Step(step, 0.1, 0.5f, exact);
    }
    EXPECT_EQ(std::memcmp(master.raw(), expected.raw(), master.bytes()), 0);
    kernels_.Cast(expected, rounded);
    EXPECT_EQ(std::memcmp(copy.raw(), rounded.raw(), copy.bytes()), 0);
    EXPECT_EQ(GradientNorm(kernels_, mixed), GradientNorm(kernels_, exact));
  }
}

}  // namespace
}  // namespace lockstep
