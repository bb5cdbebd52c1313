#include "core/base/philox.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <set>
#include <span>
#include <vector>

#include "gtest/gtest.h"

namespace lockstep {
namespace {

using Words = std::array<uint32_t, 4>;

// The known answers for philox4x32 with 10 rounds that the authors publish with Random123
// (kat_vectors): all zeros, all ones, and the digits of pi.
TEST(Philox, GivesThePublishedAnswers) {
  EXPECT_EQ(Philox(0).Block(0, 0), (Words{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}));
  EXPECT_EQ(Philox(~uint64_t{0}).Block(~uint64_t{0}, ~uint64_t{0}),
            (Words{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}));
  EXPECT_EQ(Philox(0x299f31d0a4093822).Block(0x85a308d3243f6a88, 0x0370734413198a2e),
            (Words{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}));
}

TEST(Philox, BitsAreTheWordsOfBlocks) {
  const Philox philox(7);
  for (uint64_t index = 0; index < 16; ++index) {
    EXPECT_EQ(philox.Bits(index, 5), philox.Block(index / 4, 5)[index % 4]);
  }
}

// FNV-1a 64 and the SplitMix64 finaliser, computed by an independent program (Python integers).
TEST(PhiloxKey, IsTheHashThatIsWrittenDown) {
  EXPECT_EQ(PhiloxKey(0, "", ""), uint64_t{0xFFB6EEC3623EEE72});
  EXPECT_EQ(PhiloxKey(1, "init", "blocks.0.weight"), uint64_t{0x727E2D73CA982BC2});
  EXPECT_EQ(PhiloxKey(0x0123456789ABCDEF, "dropout", "blocks.11.mlp"),
            uint64_t{0xB1A298608FF57AF5});
}

TEST(PhiloxKey, TellsSeedPurposeAndNameApart) {
  const std::set<uint64_t> keys = {
      PhiloxKey(1, "init", "a"), PhiloxKey(2, "init", "a"), PhiloxKey(1, "dropout", "a"),
      PhiloxKey(1, "init", "b"), PhiloxKey(1, "inita", ""), PhiloxKey(1, "", "inita"),
  };
  EXPECT_EQ(keys.size(), 6u);
}

// Slices that begin and end everywhere around block and batch boundaries.
TEST(Philox, SlicesEqualTheWhole) {
  constexpr size_t kCount = 3000;
  const Philox philox(PhiloxKey(3, "test", "slices"));
  constexpr uint64_t kBase = (uint64_t{1} << 34) - 1001;  // the block index crosses 32 bits
  std::vector<uint32_t> bits(kCount);
  std::vector<float> uniforms(kCount);
  std::vector<float> normals(kCount);
  for (size_t i = 0; i < kCount; ++i) {
    bits[i] = philox.Bits(kBase + i, 9);
    uniforms[i] = -2.0f + 5.0f * philox.Uniform(kBase + i, 9);
    normals[i] = 1.0f + 0.02f * philox.Normal(kBase + i, 9);
  }
  for (size_t begin : {0, 1, 2, 3, 4, 5, 127, 128, 129, 1023, 1024, 1500}) {
    for (size_t count : {0, 1, 2, 3, 4, 5, 127, 128, 129, 130, 1023, 1024, 1025, 1500}) {
      SCOPED_TRACE(testing::Message() << begin << " + " << count);
      std::vector<uint32_t> some_bits(count);
      std::vector<float> some(count);
      philox.FillBits(some_bits, kBase + begin, 9);
      EXPECT_TRUE(std::ranges::equal(some_bits, std::span(bits).subspan(begin, count)));
      philox.FillUniform(some, kBase + begin, 9, -2.0f, 3.0f);
      EXPECT_TRUE(std::ranges::equal(some, std::span(uniforms).subspan(begin, count)));
      philox.FillNormal(some, kBase + begin, 1.0f, 0.02f, 9);
      EXPECT_TRUE(std::ranges::equal(some, std::span(normals).subspan(begin, count)));
    }
  }
}

// FNV-1a over the bits of many normals: initial values are the same on every processor.
TEST(Philox, NormalsHaveTheSameBitsOnEveryProcessor) {
  std::vector<float> values(1 << 16);
  Philox(PhiloxKey(5, "test", "bits")).FillNormal(values, 0, 0.5f, 0.02f);
  uint64_t state = 0xcbf29ce484222325;
  for (const float value : values) {
    state = (state ^ std::bit_cast<uint32_t>(value)) * 0x100000001b3;
  }
  EXPECT_EQ(state, 0x316321fbc86f470fu);
}

TEST(Philox, UniformStaysBelowItsUpperBound) {
  // With a width of one unit in the last place of 1, most sums would round up to the bound.
  const float upper = std::nextafter(1.0f, 2.0f);
  std::vector<float> values(1000);
  Philox(1).FillUniform(values, 0, 0, 1.0f, upper);
  for (float value : values) EXPECT_EQ(value, 1.0f);
}

struct Moments {
  double mean = 0;
  double variance = 0;
  double skewness = 0;
  double kurtosis = 0;
};

Moments MomentsOf(const std::vector<float>& values) {
  Moments m;
  const double n = static_cast<double>(values.size());
  for (float v : values) m.mean += v / n;
  double third = 0;
  double fourth = 0;
  for (float v : values) {
    const double d = v - m.mean;
    m.variance += d * d / n;
    third += d * d * d / n;
    fourth += d * d * d * d / n;
  }
  m.skewness = third / std::pow(m.variance, 1.5);
  m.kurtosis = fourth / (m.variance * m.variance);
  return m;
}

constexpr size_t kSamples = 1 << 18;

// Bounds are five standard errors of each moment over kSamples draws.
TEST(Philox, NormalsHaveTheMomentsOfTheNormalDistribution) {
  std::vector<float> values(kSamples);
  Philox(PhiloxKey(11, "test", "normal")).FillNormal(values, 0, 0.0f, 1.0f);
  const Moments m = MomentsOf(values);
  const double n = kSamples;
  EXPECT_NEAR(m.mean, 0, 5 / std::sqrt(n));
  EXPECT_NEAR(m.variance, 1, 5 * std::sqrt(2 / n));
  EXPECT_NEAR(m.skewness, 0, 5 * std::sqrt(6 / n));
  EXPECT_NEAR(m.kurtosis, 3, 5 * std::sqrt(24 / n));
  // Neighbours (the two halves of a pair, and pairs) are uncorrelated.
  double products = 0;
  for (size_t i = 0; i + 1 < values.size(); ++i) products += double{values[i]} * values[i + 1];
  EXPECT_NEAR(products / n, 0, 5 / std::sqrt(n));
}

// Chi-square of `counts` against equal expectations.
double ChiSquare(const std::vector<int>& counts) {
  double total = 0;
  for (int c : counts) total += c;
  const double expected = total / static_cast<double>(counts.size());
  double chi = 0;
  for (int c : counts) chi += (c - expected) * (c - expected) / expected;
  return chi;
}

// 255 degrees of freedom: mean 255, standard deviation sqrt(510) = 22.6; five of them either way.
constexpr int kBins = 256;
constexpr double kChiLow = 255 - 5 * 22.6;
constexpr double kChiHigh = 255 + 5 * 22.6;

TEST(Philox, UniformsFillTheirRangeEvenly) {
  std::vector<float> values(kSamples);
  Philox(PhiloxKey(12, "test", "uniform")).FillUniform(values, 0, 0, 0.0f, 1.0f);
  std::vector<int> counts(kBins);
  for (float v : values) {
    ASSERT_GE(v, 0.0f);
    ASSERT_LT(v, 1.0f);
    ++counts[static_cast<size_t>(v * kBins)];
  }
  EXPECT_GT(ChiSquare(counts), kChiLow);
  EXPECT_LT(ChiSquare(counts), kChiHigh);
}

// Through its own distribution function a normal becomes uniform.
TEST(Philox, NormalsFollowTheNormalDistribution) {
  std::vector<float> values(kSamples);
  Philox(PhiloxKey(13, "test", "normal")).FillNormal(values, 1, 0.0f, 1.0f);
  std::vector<int> counts(kBins);
  for (float v : values) {
    const double p = 0.5 * std::erfc(-double{v} / std::sqrt(2.0));
    ++counts[std::min<size_t>(static_cast<size_t>(p * kBins), kBins - 1)];
  }
  EXPECT_GT(ChiSquare(counts), kChiLow);
  EXPECT_LT(ChiSquare(counts), kChiHigh);
}

// The same element under another high counter, key or name is another number.
TEST(Philox, StreamsAreUnrelated) {
  constexpr size_t kCount = 1 << 16;
  const auto correlation = [](Philox a, uint64_t hi_a, Philox b, uint64_t hi_b) {
    std::vector<float> x(kCount);
    std::vector<float> y(kCount);
    a.FillNormal(x, 0, 0.0f, 1.0f, hi_a);
    b.FillNormal(y, 0, 0.0f, 1.0f, hi_b);
    double sum = 0;
    for (size_t i = 0; i < kCount; ++i) sum += double{x[i]} * y[i];
    return sum / kCount;
  };
  const double bound = 5 / std::sqrt(double{kCount});
  EXPECT_NEAR(correlation(Philox(1), 0, Philox(1), 1), 0, bound);
  EXPECT_NEAR(correlation(Philox(1), 0, Philox(2), 0), 0, bound);
  EXPECT_NEAR(correlation(Philox(PhiloxKey(1, "init", "layer.0")), 0,
                          Philox(PhiloxKey(1, "init", "layer.1")), 0),
              0, bound);
}

}  // namespace
}  // namespace lockstep
