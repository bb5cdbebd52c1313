#pragma once

#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>

namespace lockstep::cpu {

// Elementary functions without branches or calls, so that loops over them vectorise and an element
// gets the same bits whether it falls into a loop's vector body or its tail. Library versions
// differ between the two, and with them runs whose tensors are cut differently (contract 3 of the
// design).

// e^x within 2 ulp for x in [-87.3, 88.3], clamped to the values at the ends outside. Cody and
// Waite: x = n ln 2 + r, |r| <= ln 2 / 2, ln 2 in two words; e^r by its Taylor polynomial of degree
// 7, whose remainder is below 2^-27 there.
inline float Exp(float x) {
  x = x < -87.3f ? -87.3f : x;
  x = x > 88.3f ? 88.3f : x;
  // Adding and subtracting 1.5 * 2^23 rounds to the nearest integer.
  constexpr float kRound = 12582912.0f;
  const float n = std::fma(x, 1.44269504f, kRound) - kRound;
  float r = std::fma(n, -0.693145752f, x);
  r = std::fma(n, -1.42860677e-6f, r);
  float p = 1.0f / 5040;
  p = std::fma(p, r, 1.0f / 720);
  p = std::fma(p, r, 1.0f / 120);
  p = std::fma(p, r, 1.0f / 24);
  p = std::fma(p, r, 1.0f / 6);
  p = std::fma(p, r, 0.5f);
  p = std::fma(p, r, 1.0f);
  p = std::fma(p, r, 1.0f);
  return p * std::bit_cast<float>((static_cast<int32_t>(n) + 127) << 23);
}

// The natural logarithm within 2 ulp, for every x: NaN below 0, -infinity at 0; subnormal numbers
// count as the smallest normal one. x = 2^k m, m in [sqrt(1/2), sqrt(2)); with f = m - 1 and
// s = f / (2 + f), log m = 2 atanh s = f - s (f - 2 (s^2 / 3 + s^4 / 5 + ...)), |s| < 0.172: the
// terms left out are below 2^-27.
inline float Log(float x) {
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  constexpr float kSmallest = std::numeric_limits<float>::min();
  constexpr uint32_t kRootOfHalf = 0x3f3504f3;  // the bits of sqrt(1/2)
  const float normal = x < kSmallest ? kSmallest : x;
  const uint32_t moved = std::bit_cast<uint32_t>(normal) + (0x3f800000 - kRootOfHalf);
  const float f = std::bit_cast<float>((moved & 0x007fffff) + kRootOfHalf) - 1.0f;
  const float k = static_cast<float>(static_cast<int32_t>(moved >> 23) - 127);
  const float s = f / (2.0f + f);
  const float z = s * s;
  float p = 2.0f / 9;
  p = std::fma(p, z, 2.0f / 7);
  p = std::fma(p, z, 2.0f / 5);
  p = std::fma(p, z, 2.0f / 3);
  const float small = std::fma(k, 1.42860677e-6f, -s * std::fma(-p, z, f));
  const float result = std::fma(k, 0.693145752f, f + small);
  const float at_end = x > 0 ? x : x == 0 ? -kInfinity : std::numeric_limits<float>::quiet_NaN();
  return x > 0 && x < kInfinity ? result : at_end;
}

// GELU by the tanh approximation: x/2 (1 + tanh u) = x / (1 + e^-2u),
// u = sqrt(2/pi) (x + 0.044715 x^3).
inline constexpr float kGeluTwoRoot = 1.5957691216f;  // 2 sqrt(2/pi)
inline constexpr float kGeluCubic = 0.044715f;

inline float GeluSigmoid(float x) {
  return 1.0f / (1.0f + Exp(-kGeluTwoRoot * std::fma(kGeluCubic * x * x, x, x)));
}

inline float Gelu(float x) { return x * GeluSigmoid(x); }

// GELU and its derivative.
struct ValueAndSlope {
  float value, slope;
};
inline ValueAndSlope GeluWithDerivative(float x) {
  const float s = GeluSigmoid(x);
  const float inner = kGeluTwoRoot * std::fma(3 * kGeluCubic * x, x, 1.0f);
  return {x * s, std::fma(x * s * (1.0f - s), inner, s)};
}

// SiLU, x / (1 + e^-x), and its derivative.
inline float Sigmoid(float x) { return 1.0f / (1.0f + Exp(-x)); }

inline ValueAndSlope SiluWithDerivative(float x) {
  const float s = Sigmoid(x);
  return {x * s, std::fma(x * s, 1.0f - s, s)};
}

}  // namespace lockstep::cpu
