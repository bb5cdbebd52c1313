#include "core/base/half.h"

#include <algorithm>  // std::max
#include <cmath>
#include <cstdint>
#include <limits>

#include "gtest/gtest.h"

namespace lockstep {
namespace {

// A 16-bit floating-point format, from its definition.
struct Format {
  int exponent_bits;
  int fraction_bits;
  int bias() const { return (1 << (exponent_bits - 1)) - 1; }
};
constexpr Format kHalf = {5, 10};
constexpr Format kBFloat16 = {8, 7};

double Value(uint16_t bits, Format format) {
  const int exponent = bits >> format.fraction_bits & ((1 << format.exponent_bits) - 1);
  const double fraction =
      std::ldexp(bits & ((1 << format.fraction_bits) - 1), -format.fraction_bits);
  double value = exponent == 0 ? std::ldexp(fraction, 1 - format.bias())
                               : std::ldexp(1 + fraction, exponent - format.bias());
  if (exponent == (1 << format.exponent_bits) - 1) {
    value = fraction == 0 ? std::numeric_limits<double>::infinity()
                          : std::numeric_limits<double>::quiet_NaN();
  }
  return bits >> 15 ? -value : value;
}

// The value nearest to x, by rounding x to a whole number of the format's steps.
double Rounded(double x, Format format) {
  if (x == 0 || !std::isfinite(x)) return x;
  const int exponent = std::max(std::ilogb(x), 1 - format.bias());
  const int step = exponent - format.fraction_bits;
  const double rounded = std::ldexp(std::nearbyint(std::ldexp(x, -step)), step);
  const double infinite = std::ldexp(1, format.bias() + 1);
  return std::abs(rounded) < infinite ? rounded
                                      : std::copysign(std::numeric_limits<double>::infinity(), x);
}

template <typename ToFloat>
void CheckAllValues(ToFloat to_float, Format format) {
  for (int bits = 0; bits < 1 << 16; ++bits) {
    const double expected = Value(static_cast<uint16_t>(bits), format);
    const double value = to_float(static_cast<uint16_t>(bits));
    if (std::isnan(expected)) {
      EXPECT_TRUE(std::isnan(value)) << bits;
    } else {
      EXPECT_EQ(value, expected) << bits;
      EXPECT_EQ(std::signbit(value), std::signbit(expected)) << bits;
    }
  }
}

// Around each 16-bit value and half way to its neighbours, and all exponents besides.
template <typename ToFloat, typename FromFloat>
void CheckRounding(ToFloat to_float, FromFloat from_float, Format format) {
  const auto check = [&](float x) {
    const double expected = Rounded(x, format);
    const uint16_t bits = from_float(x);
    if (std::isnan(x)) {
      EXPECT_TRUE(std::isnan(to_float(bits)));
    } else {
      EXPECT_EQ(Value(bits, format), expected) << x;
      EXPECT_EQ(bits >> 15, std::signbit(x) ? 1 : 0) << x;
    }
  };
  for (int bits = 0; bits < 1 << 16; ++bits) {
    const float here = to_float(static_cast<uint16_t>(bits));
    const float there = to_float(static_cast<uint16_t>(bits + 1));
    const float middle = here / 2 + there / 2;
    for (const float x : {here, middle}) {
      check(x);
      check(std::nextafter(x, std::numeric_limits<float>::infinity()));
      check(std::nextafter(x, -std::numeric_limits<float>::infinity()));
    }
  }
  for (int exponent = -149; exponent < 128; ++exponent) {
    for (const double mantissa : {1.0, 1.00048828125, 1.4142135, 1.9999999}) {
      check(static_cast<float>(std::ldexp(mantissa, exponent)));
      check(static_cast<float>(-std::ldexp(mantissa, exponent)));
    }
  }
}

TEST(HalfTest, AllValues) { CheckAllValues(HalfToFloat, kHalf); }
TEST(HalfTest, RoundsToNearestEven) { CheckRounding(HalfToFloat, FloatToHalf, kHalf); }
TEST(BFloat16Test, AllValues) { CheckAllValues(BFloat16ToFloat, kBFloat16); }
TEST(BFloat16Test, RoundsToNearestEven) {
  CheckRounding(BFloat16ToFloat, FloatToBFloat16, kBFloat16);
}

TEST(HalfTest, LimitsOfTheRange) {
  EXPECT_EQ(FloatToHalf(65504), 0x7bff);
  EXPECT_EQ(FloatToHalf(65519.996f), 0x7bff);
  EXPECT_EQ(FloatToHalf(65520), 0x7c00);
  EXPECT_EQ(FloatToHalf(-1e30f), 0xfc00);
  EXPECT_EQ(FloatToHalf(0x1p-24f), 0x0001);
  EXPECT_EQ(FloatToHalf(0x1p-25f), 0x0000);  // half way, to even
  EXPECT_EQ(FloatToHalf(0x1.8p-25f), 0x0001);
}

}  // namespace
}  // namespace lockstep
