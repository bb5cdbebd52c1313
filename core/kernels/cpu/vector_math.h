#pragma once

#include <bit>
#include <cmath>
#include <cstdint>

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

}  // namespace lockstep::cpu
