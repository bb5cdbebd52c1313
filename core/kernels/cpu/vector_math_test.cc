#include "core/kernels/cpu/vector_math.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

#include "gtest/gtest.h"

namespace lockstep::cpu {
namespace {

// The distance to the next float above |x|.
double Ulp(double x) {
  const float magnitude = std::abs(static_cast<float>(x));
  return static_cast<double>(std::nextafter(magnitude, std::numeric_limits<float>::infinity())) -
         magnitude;
}

// Every 499th float of [-87.3, 88.3], some four millions.
std::vector<float> Sweep() {
  std::vector<float> at;
  for (uint32_t bits = 0; std::bit_cast<float>(bits) <= 88.3f; bits += 499) {
    const float x = std::bit_cast<float>(bits);
    at.push_back(x);
    if (x <= 87.3f) at.push_back(-x);
  }
  return at;
}

TEST(VectorMathTest, ExpIsWithinTwoUlp) {
  double worst = 0;
  for (float x : Sweep()) {
    const double exact = std::exp(static_cast<double>(x));
    worst = std::max(worst, std::abs(Exp(x) - exact) / Ulp(exact));
  }
  EXPECT_LE(worst, 2);
  EXPECT_GE(worst, 0.4);  // the sweep has seen something
}

TEST(VectorMathTest, ExpAtTheEnds) {
  EXPECT_EQ(Exp(0.0f), 1);
  EXPECT_EQ(Exp(-0.0f), 1);
  const float infinity = std::numeric_limits<float>::infinity();
  for (float x : {-88.0f, -1000.0f, -infinity}) EXPECT_EQ(Exp(x), Exp(-87.3f));
  for (float x : {89.0f, 1000.0f, infinity}) EXPECT_EQ(Exp(x), Exp(88.3f));
  EXPECT_GT(Exp(-87.3f), std::numeric_limits<float>::min());
  EXPECT_LT(Exp(88.3f), std::numeric_limits<float>::max());
  EXPECT_TRUE(std::isnan(Exp(std::numeric_limits<float>::quiet_NaN())));
}

TEST(VectorMathTest, LogIsWithinTwoUlp) {
  double worst = 0;
  for (uint32_t bits = std::bit_cast<uint32_t>(std::numeric_limits<float>::min());
       bits < 0x7f800000; bits += 499) {
    const float x = std::bit_cast<float>(bits);
    if (x == 1) continue;
    const double exact = std::log(static_cast<double>(x));
    worst = std::max(worst, std::abs(Log(x) - exact) / Ulp(exact));
  }
  for (uint32_t step = 1; step < 1 << 20; ++step) {  // where the result is small
    for (const uint32_t bits : {0x3f800000 + step, 0x3f800000 - step}) {
      const double exact = std::log(static_cast<double>(std::bit_cast<float>(bits)));
      worst = std::max(worst, std::abs(Log(std::bit_cast<float>(bits)) - exact) / Ulp(exact));
    }
  }
  EXPECT_LE(worst, 2);
  EXPECT_GE(worst, 0.4);  // the sweep has seen something
}

TEST(VectorMathTest, LogAtTheEnds) {
  const float infinity = std::numeric_limits<float>::infinity();
  EXPECT_EQ(Log(1.0f), 0);
  EXPECT_EQ(Log(infinity), infinity);
  EXPECT_EQ(Log(0.0f), -infinity);
  EXPECT_EQ(Log(-0.0f), -infinity);
  EXPECT_EQ(Log(1e-40f), Log(std::numeric_limits<float>::min()));
  EXPECT_TRUE(std::isnan(Log(-1.0f)));
  EXPECT_TRUE(std::isnan(Log(std::numeric_limits<float>::quiet_NaN())));
}

// Not inlined, one at a time: what a loop's tail does.
[[gnu::noinline]] float ExpAlone(float x) { return Exp(x); }
[[gnu::noinline]] float LogAlone(float x) { return Log(x); }
[[gnu::noinline]] float GeluAlone(float x) { return Gelu(x); }
[[gnu::noinline]] float SlopeAlone(float x) { return GeluWithDerivative(x).slope; }

TEST(VectorMathTest, VectorsAndTailsGiveTheSameBits) {
  const std::vector<float> at = Sweep();
  std::vector<float> exp(at.size()), log(at.size()), gelu(at.size()), slope(at.size());
  for (size_t i = 0; i < at.size(); ++i) exp[i] = Exp(at[i]);
  for (size_t i = 0; i < at.size(); ++i) log[i] = Log(std::abs(at[i]));
  for (size_t i = 0; i < at.size(); ++i) gelu[i] = Gelu(at[i]);
  for (size_t i = 0; i < at.size(); ++i) slope[i] = GeluWithDerivative(at[i]).slope;
  int64_t differ = 0;
  for (size_t i = 0; i < at.size(); i += 7) {
    differ += exp[i] != ExpAlone(at[i]) || log[i] != LogAlone(std::abs(at[i])) ||
              gelu[i] != GeluAlone(at[i]) || slope[i] != SlopeAlone(at[i]);
  }
  EXPECT_EQ(differ, 0);
}

// The bits of a processor with AVX-512, which any other must give.
TEST(VectorMathTest, BitsAreTheSameOnEveryProcessor) {
  const auto hash = [](const auto& function) {
    uint64_t state = 0xcbf29ce484222325;  // FNV-1a
    for (const float x : Sweep()) {
      state = (state ^ std::bit_cast<uint32_t>(function(x))) * 0x100000001b3;
    }
    return state;
  };
  EXPECT_EQ(hash([](float x) { return Exp(x); }), 0x5874ae013e25664eu);
  EXPECT_EQ(hash([](float x) { return Log(std::abs(x)); }), 0x3bf2c4674ae05ee4u);
  EXPECT_EQ(hash([](float x) { return GeluWithDerivative(x).slope; }), 0xb8f6ca0846c0e9ddu);
}

TEST(VectorMathTest, GeluValueIsGelu) {
  for (float x = -12; x < 12; x += 0.001f) EXPECT_EQ(GeluWithDerivative(x).value, Gelu(x));
}

}  // namespace
}  // namespace lockstep::cpu
