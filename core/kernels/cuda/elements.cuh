// How kernels read and write elements: as fp32, whatever they are stored in
// (core/kernels/kernels.h). The dtype is a value, not a template's argument: all threads take the
// same branch, and a kernel is compiled once for all combinations of operands.

#pragma once

#include <cstdint>

#include "core/kernels/cuda/array.h"
#include "cuda_bf16.h"
#include "cuda_fp16.h"
#include "cuda_runtime.h"

namespace lockstep::cuda {

// Elements that a thread moves at once where rows begin at multiples of it: 16 or 32 bytes.
constexpr int kVector = 8;

constexpr int kThreads = 256;  // of a block, where nothing speaks for another number

inline int64_t BlocksFor(int64_t items, int64_t per_block) {
  return (items + per_block - 1) / per_block;
}

// Elements at, at + 1, ... of x; `at` is a multiple of kCount, which is 1 or kVector.
template <int kCount>
__device__ __forceinline__ void Load(const Array& x, int64_t at, float (&out)[kCount]) {
  static_assert(kCount == 1 || kCount == kVector);
  if (x.dtype == DType::kF32) {
    const float* from = static_cast<const float*>(x.data) + at;
    if constexpr (kCount == 1) {
      out[0] = *from;
    } else {
      const float4 low = reinterpret_cast<const float4*>(from)[0];
      const float4 high = reinterpret_cast<const float4*>(from)[1];
      out[0] = low.x, out[1] = low.y, out[2] = low.z, out[3] = low.w;
      out[4] = high.x, out[5] = high.y, out[6] = high.z, out[7] = high.w;
    }
  } else if (x.dtype == DType::kF16) {
    const __half* from = static_cast<const __half*>(x.data) + at;
    alignas(16) __half parts[kCount];
    if constexpr (kCount == 1) {
      parts[0] = *from;
    } else {
      *reinterpret_cast<uint4*>(parts) = *reinterpret_cast<const uint4*>(from);
    }
    for (int i = 0; i < kCount; ++i) out[i] = __half2float(parts[i]);
  } else {
    const __nv_bfloat16* from = static_cast<const __nv_bfloat16*>(x.data) + at;
    alignas(16) __nv_bfloat16 parts[kCount];
    if constexpr (kCount == 1) {
      parts[0] = *from;
    } else {
      *reinterpret_cast<uint4*>(parts) = *reinterpret_cast<const uint4*>(from);
    }
    for (int i = 0; i < kCount; ++i) out[i] = __bfloat162float(parts[i]);
  }
}

// Rounds to the nearest, ties to even; beyond fp16's range to infinity.
template <int kCount>
__device__ __forceinline__ void Store(const Array& x, int64_t at, const float (&in)[kCount]) {
  static_assert(kCount == 1 || kCount == kVector);
  if (x.dtype == DType::kF32) {
    float* to = static_cast<float*>(x.data) + at;
    if constexpr (kCount == 1) {
      *to = in[0];
    } else {
      reinterpret_cast<float4*>(to)[0] = make_float4(in[0], in[1], in[2], in[3]);
      reinterpret_cast<float4*>(to)[1] = make_float4(in[4], in[5], in[6], in[7]);
    }
  } else if (x.dtype == DType::kF16) {
    __half* to = static_cast<__half*>(x.data) + at;
    alignas(16) __half parts[kCount];
    for (int i = 0; i < kCount; ++i) parts[i] = __float2half_rn(in[i]);
    if constexpr (kCount == 1) {
      *to = parts[0];
    } else {
      *reinterpret_cast<uint4*>(to) = *reinterpret_cast<const uint4*>(parts);
    }
  } else {
    __nv_bfloat16* to = static_cast<__nv_bfloat16*>(x.data) + at;
    alignas(16) __nv_bfloat16 parts[kCount];
    for (int i = 0; i < kCount; ++i) parts[i] = __float2bfloat16_rn(in[i]);
    if constexpr (kCount == 1) {
      *to = parts[0];
    } else {
      *reinterpret_cast<uint4*>(to) = *reinterpret_cast<const uint4*>(parts);
    }
  }
}

__device__ __forceinline__ float LoadOne(const Array& x, int64_t at) {
  float value[1];
  Load(x, at, value);
  return value[0];
}

__device__ __forceinline__ void StoreOne(const Array& x, int64_t at, float value) {
  const float values[1] = {value};
  Store(x, at, values);
}

}  // namespace lockstep::cuda
