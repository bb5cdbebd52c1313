// How a token is drawn from logits.

#include <cmath>
#include <limits>
#include <vector>

#include "core/base/philox.h"
#include "gtest/gtest.h"
#include "tools/generate/continuation.h"

namespace lockstep {
namespace {

const std::vector<float> kLogits = {0.5f, -1.0f, 2.0f, 2.0f, 1.25f, -30.0f};

// Softmax as its formula has it, of the tokens that may come.
std::vector<double> Probabilities(double temperature, const std::vector<int>& allowed) {
  std::vector<double> probabilities(kLogits.size());
  double sum = 0;
  for (const int token : allowed) sum += std::exp(kLogits[token] / temperature);
  for (const int token : allowed) {
    probabilities[token] = std::exp(kLogits[token] / temperature) / sum;
  }
  return probabilities;
}

std::vector<double> Frequencies(const SamplingOptions& options, int draws) {
  const Philox philox(PhiloxKey(3, "test", "sampling"));
  std::vector<double> frequencies(kLogits.size());
  for (int i = 0; i < draws; ++i) {
    frequencies[SampleToken(kLogits, options, philox.Uniform(static_cast<uint64_t>(i)))] +=
        1.0 / draws;
  }
  return frequencies;
}

// Five standard deviations of each frequency.
void ExpectFrequencies(const SamplingOptions& options, const std::vector<int>& allowed) {
  constexpr int kDraws = 100'000;
  const std::vector<double> expected = Probabilities(options.temperature, allowed);
  const std::vector<double> found = Frequencies(options, kDraws);
  for (size_t token = 0; token < expected.size(); ++token) {
    const double p = expected[token];
    EXPECT_NEAR(found[token], p, 5 * std::sqrt(p * (1 - p) / kDraws))
        << "token " << token << ", temperature " << options.temperature << ", top "
        << options.top_k;
  }
}

TEST(SampleTokenTest, FollowsTheSoftmax) {
  const std::vector<int> all = {0, 1, 2, 3, 4, 5};
  for (const double temperature : {1.0, 0.5, 3.0}) {
    ExpectFrequencies({.temperature = temperature}, all);
    ExpectFrequencies({.temperature = temperature, .top_k = 6}, all);
    ExpectFrequencies({.temperature = temperature, .top_k = 100}, all);
  }
}

TEST(SampleTokenTest, OnlyTheLikeliestComeWithTopK) {
  ExpectFrequencies({.top_k = 2}, {2, 3});
  ExpectFrequencies({.temperature = 2, .top_k = 3}, {2, 3, 4});
  ExpectFrequencies({.top_k = 5}, {0, 1, 2, 3, 4});
}

TEST(SampleTokenTest, GreedyTakesTheFirstOfTheLargest) {
  for (const double uniform : {0.0, 0.5, 0.999999}) {
    EXPECT_EQ(SampleToken(kLogits, {.top_k = 1}, uniform), 2);
    EXPECT_EQ(SampleToken(kLogits, {.temperature = 0}, uniform), 2);
  }
}

// The whole range of random numbers, and numbers far out.
TEST(SampleTokenTest, ReachesFromTheFirstToTheLast) {
  const std::vector<float> even = {7.0f, 7.0f, 7.0f, 7.0f};
  EXPECT_EQ(SampleToken(even, {}, 0.0), 0);
  EXPECT_EQ(SampleToken(even, {}, 0.2499999), 0);
  EXPECT_EQ(SampleToken(even, {}, 0.25), 1);
  EXPECT_EQ(SampleToken(even, {}, std::nextafter(1.0, 0.0)), 3);
  const float infinity = std::numeric_limits<float>::infinity();
  const std::vector<float> far = {-infinity, 3e38f, -3e38f};
  for (const double uniform : {0.0, 0.5, std::nextafter(1.0, 0.0)}) {
    EXPECT_EQ(SampleToken(far, {}, uniform), 1);
    EXPECT_EQ(SampleToken(far, {.temperature = 1e-6}, uniform), 1);
  }
}

}  // namespace
}  // namespace lockstep
