// Conversions between float and the 16-bit floating types, free of branches, so that loops over
// them vectorise on any processor and give the same bits on all.

#pragma once

#include <bit>
#include <cstdint>

namespace lockstep {

// IEEE 754 binary16, every value exactly. No step meets a subnormal float, which processors are
// slow with.
inline float HalfToFloat(uint16_t half) {
  const uint32_t magnitude = (half & 0x7fffu) << 13;  // exponent and fraction in float's places
  const uint32_t exponent = magnitude & 0x0f800000u;
  // Rebases the exponent; those of infinity and NaN go all the way up.
  const uint32_t rebased = magnitude + (exponent == 0x0f800000u ? 0x70000000u : 0x38000000u);
  // A subnormal half counts steps of 2^-24: as the fraction of a float in [2^-14, 2^-13), less
  // 2^-14.
  const float subnormal = std::bit_cast<float>(rebased + 0x00800000u) - 0x1p-14f;
  const uint32_t bits = exponent == 0 ? std::bit_cast<uint32_t>(subnormal) : rebased;
  return std::bit_cast<float>(bits | (half & 0x8000u) << 16);
}

// The nearest half, ties to even; 65520 and above become infinite, NaN stays NaN.
inline uint16_t FloatToHalf(float x) {
  const uint32_t bits = std::bit_cast<uint32_t>(x);
  const uint32_t magnitude = bits & 0x7fffffffu;
  // Rebases the exponent and rounds the 13 bits that go.
  const uint32_t normal = (magnitude - 0x38000000u + 0xfffu + (magnitude >> 13 & 1)) >> 13;
  // Below 2^-14: the last bit of 0.5 + x weighs 2^-24, which is half's smallest step.
  const uint32_t subnormal =
      std::bit_cast<uint32_t>(std::bit_cast<float>(magnitude) + 0.5f) - 0x3f000000u;
  uint32_t half = magnitude < 0x38800000u ? subnormal : normal;
  half = magnitude >= 0x477ff000u ? 0x7c00u : half;
  half = magnitude > 0x7f800000u ? 0x7e00u : half;
  return static_cast<uint16_t>(half | (bits >> 16 & 0x8000u));
}

// bfloat16: the upper half of a float.
inline float BFloat16ToFloat(uint16_t bfloat) {
  return std::bit_cast<float>(static_cast<uint32_t>(bfloat) << 16);
}

// The nearest bfloat16, ties to even; NaN stays NaN.
inline uint16_t FloatToBFloat16(float x) {
  const uint32_t bits = std::bit_cast<uint32_t>(x);
  const uint32_t rounded = bits + 0x7fffu + (bits >> 16 & 1);
  const uint32_t quiet = bits | 0x400000u;
  return static_cast<uint16_t>((x != x ? quiet : rounded) >> 16);
}

}  // namespace lockstep
