#include "core/nn/parameter.h"

#include <algorithm>
#include <cmath>
#include <string>
#include <utility>
#include <vector>

#include "core/autograd/testing/arrays.h"
#include "core/base/parallel.h"
#include "core/kernels/cpu/cpu_kernels.h"
#include "gtest/gtest.h"

namespace lockstep {
namespace {

using reference::Array;

class InitializeTest : public testing::Test {
 protected:
  static constexpr uint64_t kSeed = 42;

  Array Values(const Parameter& parameter, uint64_t seed = kSeed) {
    return Part(parameter, 0, parameter.shape.elements(), seed);
  }
  Array Part(const Parameter& parameter, int64_t first, int64_t count, uint64_t seed = kSeed) {
    const Tensor values = kernels_.Empty({count});
    Initialize(parameter, seed, first, kernels_, values);
    return Download(kernels_, values);
  }

  CpuAllocator allocator_;
  CpuKernels kernels_{allocator_};
};

struct Moments {
  double mean = 0, variance = 0;
};
Moments MomentsOf(const Array& x) {
  Moments moments;
  const auto n = static_cast<double>(x.elements());
  for (double v : x.value) moments.mean += v / n;
  for (double v : x.value) moments.variance += (v - moments.mean) * (v - moments.mean) / n;
  return moments;
}

TEST_F(InitializeTest, AnyPartEqualsThatPartOfTheWhole) {
  for (const Init& init : {Init::Normal(0.5f), Init::Uniform(0.25f), Init::Constant(3)}) {
    const Parameter parameter("layer.weight", {101, 99}, init);
    const Array whole = Values(parameter);
    for (const auto& [first, count] :
         {std::pair<int64_t, int64_t>{0, 1}, {1, 4500}, {4501, 3}, {4504, 5495}}) {
      const Array expected({count},
                           {whole.value.begin() + first, whole.value.begin() + first + count});
      EXPECT_TRUE(SameBits(expected, Part(parameter, first, count))) << first;
    }
  }
}

TEST_F(InitializeTest, TheNumberOfThreadsDoesNotShow) {
  const Parameter parameter("layer.weight", {101, 99}, Init::Normal(1));
  const int threads = MaxThreads();
  SetThreads(1);
  const Array alone = Values(parameter);
  SetThreads(3);
  EXPECT_TRUE(SameBits(alone, Values(parameter)));
  SetThreads(threads);
}

TEST_F(InitializeTest, BelongsToSeedAndNameAlone) {
  const Parameter parameter("a.weight", {50}, Init::Normal(1));
  const Array values = Values(parameter);
  EXPECT_TRUE(SameBits(values, Values(Parameter("a.weight", {50}, Init::Normal(1)))));
  // The numbers are those of the element, whatever the shape around them.
  EXPECT_TRUE(SameBits(values, Part(Parameter("a.weight", {10, 9}, Init::Normal(1)), 0, 50)));
  const Array other_name = Values(Parameter("b.weight", {50}, Init::Normal(1)));
  const Array other_seed = Values(parameter, kSeed + 1);
  for (int64_t i = 0; i < 50; ++i) {
    EXPECT_NE(values[i], other_name[i]);
    EXPECT_NE(values[i], other_seed[i]);
  }
}

TEST_F(InitializeTest, TiedParametersStartAsTheOneTheyAreTiedTo) {
  Parameter embedding("embedding.weight", {20, 5}, Init::Normal(0.02f));
  Parameter head("head.weight", {20, 5}, Init::Constant(1));
  head.tied_to = &embedding;
  EXPECT_TRUE(SameBits(Values(embedding), Values(head)));
}

// Bounds of five standard errors: of a mean, stddev / sqrt(n); of a normal variance,
// variance sqrt(2 / n); of a uniform variance less.
TEST_F(InitializeTest, NormalHasItsMoments) {
  constexpr int64_t kElements = 100000;
  constexpr double kStddev = 0.02;
  const Moments moments =
      MomentsOf(Values(Parameter("weight", {kElements}, Init::Normal(kStddev))));
  EXPECT_NEAR(moments.mean, 0, 5 * kStddev / std::sqrt(kElements));
  EXPECT_NEAR(moments.variance / (kStddev * kStddev), 1, 5 * std::sqrt(2.0 / kElements));
}

TEST_F(InitializeTest, UniformHasItsMomentsAndBound) {
  constexpr int64_t kElements = 100000;
  constexpr double kBound = 0.25, kVariance = kBound * kBound / 3;
  const Array values = Values(Parameter("weight", {kElements}, Init::Uniform(kBound)));
  const Moments moments = MomentsOf(values);
  EXPECT_NEAR(moments.mean, 0, 5 * std::sqrt(kVariance / kElements));
  EXPECT_NEAR(moments.variance / kVariance, 1, 5 * std::sqrt(2.0 / kElements));
  const auto [lowest, highest] = std::minmax_element(values.value.begin(), values.value.end());
  EXPECT_GE(*lowest, -kBound);
  EXPECT_LT(*highest, kBound);
  EXPECT_LT(*lowest, -0.99 * kBound);
  EXPECT_GT(*highest, 0.99 * kBound);
}

TEST(ParameterTest, OnlyMatricesDecay) {
  EXPECT_FALSE(Parameter("norm.weight", {8}, Init::Constant(1)).decays());
  EXPECT_TRUE(Parameter("linear.weight", {8, 4}, Init::Normal(1)).decays());
  EXPECT_TRUE(Parameter("conv.weight", {8, 3, 3, 4}, Init::Normal(1)).decays());
}

}  // namespace
}  // namespace lockstep
