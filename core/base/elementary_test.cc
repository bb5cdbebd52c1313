#include "core/base/elementary.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <numbers>
#include <vector>

#include "core/base/philox.h"
#include "gtest/gtest.h"

namespace lockstep {
namespace {

constexpr int kSamples = 1 << 20;

// The distance to the next double above |x|.
long double Ulp(long double x) {
  const double magnitude = std::abs(static_cast<double>(x));
  return std::nextafter(magnitude, std::numeric_limits<double>::infinity()) - magnitude;
}

// Random doubles in [0, 1).
std::vector<double> Samples(uint64_t key) {
  std::vector<uint32_t> words(2 * kSamples);
  Philox(key).FillBits(words, 0);
  std::vector<double> samples(kSamples);
  for (int i = 0; i < kSamples; ++i) {
    samples[i] = (words[2 * i] + (words[2 * i + 1] >> 11) * 0x1p-21) * 0x1p-32;
  }
  return samples;
}

TEST(ElementaryTest, LogIsWithinOneUlp) {
  long double worst = 0;
  const auto judge = [&worst](double x) {
    const long double exact = std::log(static_cast<long double>(x));
    worst = std::max(worst, std::abs(Log(x) - exact) / Ulp(exact));
  };
  for (const double sample : Samples(1)) {
    judge(std::exp2(2040 * sample - 1020));
    judge(0.5 + sample);
    judge(std::max(sample, 0x1p-33));
  }
  for (int i = 1; i < 50; ++i) judge(1 + std::ldexp(1.0, -i));
  EXPECT_LE(worst, 1);
  EXPECT_GE(worst, 0.5);  // the samples have seen something
  EXPECT_EQ(Log(1.0), 0);
}

TEST(ElementaryTest, ExpIsWithinOneUlp) {
  long double worst = 0;
  const auto judge = [&worst](double x) {
    const long double exact = std::exp(static_cast<long double>(x));
    worst = std::max(worst, std::abs(Exp(x) - exact) / Ulp(exact));
  };
  for (const double sample : Samples(3)) {
    judge(1400 * sample - 700);
    judge(2 * sample - 1);
    judge(-20 * sample);
  }
  EXPECT_LE(worst, 1);
  EXPECT_GE(worst, 0.5);
  EXPECT_EQ(Exp(0.0), 1);
}

TEST(ElementaryTest, SineAndCosineAreWithinTwoUlp) {
  long double worst = 0;
  const auto judge = [&worst](double turns) {
    // An eighth of a turn around the nearest quarter, for which long double has bits enough.
    const double quarters = std::round(4 * turns);
    const long double angle =
        2 * std::numbers::pi_v<long double> * (static_cast<long double>(turns) - quarters / 4);
    const int quadrant = static_cast<int>(std::fmod(quarters, 4) + 4) % 4;
    const long double s = std::sin(angle), c = std::cos(angle);
    const long double sines[] = {s, c, -s, -c}, cosines[] = {c, -s, -c, s};
    const SineAndCosine result = SineAndCosineOfTurns(turns);
    worst = std::max({worst, std::abs(result.sine - sines[quadrant]) / Ulp(sines[quadrant]),
                      std::abs(result.cosine - cosines[quadrant]) / Ulp(cosines[quadrant])});
  };
  for (const double sample : Samples(2)) {
    judge(sample);
    judge(100 * sample - 50);
    judge(std::floor(8 * sample) / 4 + sample * 0x1p-20);
  }
  EXPECT_LE(worst, 2);
  EXPECT_GE(worst, 0.5);
}

TEST(ElementaryTest, QuartersOfATurnAreExact) {
  for (int quarters = -9; quarters <= 9; ++quarters) {
    const SineAndCosine result = SineAndCosineOfTurns(quarters / 4.0);
    const int quadrant = (quarters + 12) % 4;
    EXPECT_EQ(result.sine, quadrant == 1 ? 1 : quadrant == 3 ? -1 : 0);
    EXPECT_EQ(result.cosine, quadrant == 0 ? 1 : quadrant == 2 ? -1 : 0);
  }
}

// Not inlined, one at a time: what a loop's tail does.
[[gnu::noinline]] double LogAlone(double x) { return Log(x); }
[[gnu::noinline]] double CosineAlone(double x) { return SineAndCosineOfTurns(x).cosine; }

TEST(ElementaryTest, VectorsAndTailsGiveTheSameBits) {
  const std::vector<double> at = Samples(3);
  std::vector<double> log(at.size()), cosine(at.size());
  for (size_t i = 0; i < at.size(); ++i) log[i] = Log(at[i] + 0x1p-33);
  for (size_t i = 0; i < at.size(); ++i) cosine[i] = SineAndCosineOfTurns(at[i]).cosine;
  int differ = 0;
  for (size_t i = 0; i < at.size(); ++i) {
    differ += log[i] != LogAlone(at[i] + 0x1p-33) || cosine[i] != CosineAlone(at[i]);
  }
  EXPECT_EQ(differ, 0);
}

// The bits of a processor with AVX-512, which any other must give.
TEST(ElementaryTest, BitsAreTheSameOnEveryProcessor) {
  const std::vector<double> samples = Samples(4);
  const auto hash = [&samples](const auto& function) {
    uint64_t state = 0xcbf29ce484222325;  // FNV-1a
    for (const double x : samples) {
      state = (state ^ std::bit_cast<uint64_t>(function(x))) * 0x100000001b3;
    }
    return state;
  };
  EXPECT_EQ(hash([](double x) { return Log(x + 0x1p-60); }), 0x3d87418f3e4d7505u);
  EXPECT_EQ(hash([](double x) { return SineAndCosineOfTurns(x).sine; }), 0x4ce8a0cd74db516au);
  EXPECT_EQ(hash([](double x) { return SineAndCosineOfTurns(x).cosine; }), 0x29825c97feecc1b0u);
  EXPECT_EQ(hash([](double x) { return Power(x, 11); }), 0xead5151245b31134u);
}

TEST(ElementaryTest, PowersAreCloseToExact) {
  EXPECT_EQ(Power(0, 0), 1);
  EXPECT_EQ(Power(0.5, 40), 0x1p-40);
  EXPECT_EQ(Power(-3, 3), -27);
  EXPECT_EQ(Power(10, 400), std::numeric_limits<double>::infinity());
  for (const double base : {0.1, 0.9, 0.95, 0.999, 1.01}) {
    for (const int64_t exponent : {1, 2, 3, 10, 57, 1000, 20000}) {
      const long double exact = std::pow(static_cast<long double>(base), exponent);
      if (exact < std::numeric_limits<double>::min()) continue;
      EXPECT_NEAR(static_cast<double>(Power(base, exponent) / exact), 1,
                  static_cast<double>(exponent) * 0x1p-52)
          << base << " ^ " << exponent;
    }
  }
}

}  // namespace
}  // namespace lockstep
