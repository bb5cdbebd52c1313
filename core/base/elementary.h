// Elementary functions in double precision whose bits are the same on every processor, with every
// compiler and in every loop: they use additions, multiplications, divisions and std::fma alone,
// which IEEE 754 rounds in one way. The C library's functions choose an implementation by the
// processor (with or without FMA), and the bits of initial weights, data or learning rates would
// follow.
//
// All are free of branches and calls, so that loops over them vectorise. Bounds of errors are those
// that elementary_test.cc measures against long double.

#pragma once

#include <bit>
#include <cmath>  // std::fma
#include <cstdint>

namespace lockstep {

// A kernel that forgets its header for single precision (core/kernels/cpu/vector_math.h) shall not
// compile: it would find the functions below, and other bits.
float Log(float x) = delete;
float Exp(float x) = delete;

// The natural logarithm of a positive, finite, normal number, within 1 ulp. Other arguments give
// meaningless numbers.
inline double Log(double x) {
  // x = 2^k m with m in [sqrt(1/2), sqrt(2)): the exponent field of x, after m's smallest value
  // is moved to where the field changes.
  constexpr uint64_t kRootOfHalf = 0x3fe6a09e667f3bcd;  // the bits of sqrt(1/2)
  constexpr uint64_t kOne = 0x3ff0000000000000;
  const uint64_t moved = std::bit_cast<uint64_t>(x) + (kOne - kRootOfHalf);
  const double m = std::bit_cast<double>((moved & 0x000fffffffffffff) + kRootOfHalf);
  // An integer below 2^52 in the mantissa of 2^52 is 2^52 plus that integer.
  const double k = std::bit_cast<double>((moved >> 52) | 0x4330000000000000) - (0x1p52 + 1023);
  // log(1 + f) = 2 atanh(s) = 2 (s + s^3 / 3 + s^5 / 5 + ...) with s = f / (2 + f), |s| < 0.172;
  // the terms left out are below 2^-59 of the first. 2 s = f - s f, where f is exact and s f small.
  const double f = m - 1;
  const double s = f / (2 + f);
  const double z = s * s;
  double p = 2.0 / 21;
  p = std::fma(p, z, 2.0 / 19);
  p = std::fma(p, z, 2.0 / 17);
  p = std::fma(p, z, 2.0 / 15);
  p = std::fma(p, z, 2.0 / 13);
  p = std::fma(p, z, 2.0 / 11);
  p = std::fma(p, z, 2.0 / 9);
  p = std::fma(p, z, 2.0 / 7);
  p = std::fma(p, z, 2.0 / 5);
  p = std::fma(p, z, 2.0 / 3);
  // ln 2 in two words, the first of so few bits that k times it is exact.
  constexpr double kLn2High = 0x1.62e42fefa38p-1, kLn2Low = 0x1.ef35793c7673p-45;
  const double small = std::fma(k, kLn2Low, -s * std::fma(-p, z, f));
  return k * kLn2High + (f + small);
}

// e^x within 1 ulp, for |x| <= 700. Other arguments give meaningless numbers.
inline double Exp(double x) {
  // x = n ln 2 + r, |r| <= ln 2 / 2; adding and subtracting 1.5 * 2^52 rounds to the nearest n.
  constexpr double kRound = 0x1.8p52;
  constexpr double kLn2High = 0x1.62e42fefa38p-1, kLn2Low = 0x1.ef35793c7673p-45;
  const double shifted = std::fma(x, 0x1.71547652b82fep+0, kRound);  // 1 / ln 2
  const double n = shifted - kRound;
  const double r = std::fma(n, -kLn2Low, std::fma(n, -kLn2High, x));
  // e^r by its Taylor polynomial, whose remainder is below 2^-57 there.
  double p = 1.0 / 6227020800;  // 13!
  p = std::fma(p, r, 1.0 / 479001600);
  p = std::fma(p, r, 1.0 / 39916800);
  p = std::fma(p, r, 1.0 / 3628800);
  p = std::fma(p, r, 1.0 / 362880);
  p = std::fma(p, r, 1.0 / 40320);
  p = std::fma(p, r, 1.0 / 5040);
  p = std::fma(p, r, 1.0 / 720);
  p = std::fma(p, r, 1.0 / 120);
  p = std::fma(p, r, 1.0 / 24);
  p = std::fma(p, r, 1.0 / 6);
  p = std::fma(p, r, 0.5);
  const double power = 1 + (r + r * r * p);
  // The lowest bits of `shifted` are those of n.
  return power * std::bit_cast<double>((std::bit_cast<uint64_t>(shifted) + 1023) << 52);
}

struct SineAndCosine {
  double sine, cosine;
};

// Sine and cosine of 2 pi turns, for |turns| < 2^49, within 2 ulp.
inline SineAndCosine SineAndCosineOfTurns(double turns) {
  // Adding and subtracting 1.5 * 2^52 rounds to the nearest integer; the lowest bits of the sum are
  // those of the integer: the quadrant.
  constexpr double kRound = 0x1.8p52;
  const double shifted = 4 * turns + kRound;
  const uint64_t quadrant = std::bit_cast<uint64_t>(shifted);
  const double rest = std::fma(shifted - kRound, -0.25, turns);  // exact, |rest| <= 1/8
  // 2 pi in two words.
  const double y = std::fma(rest, 0x1.921fb54442d18p+2, rest * 0x1.1a62633145c07p-52);
  // Taylor polynomials of sin y and cos y, whose remainders are below 2^-58 for |y| <= pi / 4.
  const double z = y * y;
  double p = 1.0 / 355687428096000;  // 17!
  p = std::fma(p, z, -1.0 / 1307674368000);
  p = std::fma(p, z, 1.0 / 6227020800);
  p = std::fma(p, z, -1.0 / 39916800);
  p = std::fma(p, z, 1.0 / 362880);
  p = std::fma(p, z, -1.0 / 5040);
  p = std::fma(p, z, 1.0 / 120);
  p = std::fma(p, z, -1.0 / 6);
  const double sine = std::fma(y * z, p, y);
  double q = 1.0 / 20922789888000;  // 16!
  q = std::fma(q, z, -1.0 / 87178291200);
  q = std::fma(q, z, 1.0 / 479001600);
  q = std::fma(q, z, -1.0 / 3628800);
  q = std::fma(q, z, 1.0 / 40320);
  q = std::fma(q, z, -1.0 / 720);
  q = std::fma(q, z, 1.0 / 24);
  q = std::fma(q, z, -0.5);
  const double cosine = std::fma(q, z, 1.0);
  const bool swapped = (quadrant & 1) != 0;
  const uint64_t sine_sign = (quadrant & 2) << 62, cosine_sign = ((quadrant + 1) & 2) << 62;
  const uint64_t sine_bits = std::bit_cast<uint64_t>(swapped ? cosine : sine) ^ sine_sign;
  const uint64_t cosine_bits = std::bit_cast<uint64_t>(swapped ? sine : cosine) ^ cosine_sign;
  return {std::bit_cast<double>(sine_bits), std::bit_cast<double>(cosine_bits)};
}

// base^exponent by repeated squaring; exponent >= 0. The relative error is below
// exponent * 2^-52.
inline double Power(double base, int64_t exponent) {
  double power = 1;
  for (; exponent > 0; exponent /= 2) {
    if (exponent % 2 == 1) power *= base;
    base *= base;
  }
  return power;
}

}  // namespace lockstep
