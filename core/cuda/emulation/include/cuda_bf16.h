// bf16 for emulated GPUs: storage, and conversions that round to the nearest, ties to even.

#pragma once

#include <bit>
#include <cstdint>

struct __nv_bfloat16 {
  uint16_t bits;
};

inline float __bfloat162float(__nv_bfloat16 x) {
  return std::bit_cast<float>(uint32_t{x.bits} << 16);
}
inline __nv_bfloat16 __float2bfloat16_rn(float x) {
  const auto bits = std::bit_cast<uint32_t>(x);
  if (x != x) return {0x7fff};
  return {static_cast<uint16_t>((bits + 0x7fff + (bits >> 16 & 1)) >> 16)};
}
