// Elements of tensors as the libraries of emulated GPUs read and write them.

#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>

#include "cuda_bf16.h"
#include "cuda_fp16.h"

namespace lockstep::emulation {

enum class ElementType { kF32, kF16, kBF16 };

inline size_t SizeOf(ElementType type) { return type == ElementType::kF32 ? 4 : 2; }

inline float LoadElement(ElementType type, const void* data, int64_t at) {
  switch (type) {
    case ElementType::kF32:
      return static_cast<const float*>(data)[at];
    case ElementType::kF16:
      return __half2float(static_cast<const __half*>(data)[at]);
    case ElementType::kBF16:
      return __bfloat162float(static_cast<const __nv_bfloat16*>(data)[at]);
  }
  return 0;
}

inline void StoreElement(ElementType type, void* data, int64_t at, float value) {
  switch (type) {
    case ElementType::kF32:
      static_cast<float*>(data)[at] = value;
      return;
    case ElementType::kF16:
      static_cast<__half*>(data)[at] = __float2half_rn(value);
      return;
    case ElementType::kBF16:
      static_cast<__nv_bfloat16*>(data)[at] = __float2bfloat16_rn(value);
      return;
  }
}

// To the 10 bits of mantissa of TF32, to the nearest, ties away from zero, as tensor cores' inputs.
inline float RoundToTf32(float x) {
  if (!(x - x == 0)) return x;  // infinite or NaN
  return std::bit_cast<float>((std::bit_cast<uint32_t>(x) + 0x1000u) & ~0x1fffu);
}

}  // namespace lockstep::emulation
