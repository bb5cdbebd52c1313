// How kernels read and write elements: as fp32, whatever they are stored in
// (core/kernels/kernels.h). The dtype is a value, not a template's argument: all threads take the
// same branch, and a kernel is compiled once for all combinations of operands.

#pragma once

#include <cstdint>
#include <type_traits>

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

__device__ __forceinline__ float ToFloat(float x) { return x; }
__device__ __forceinline__ float ToFloat(__half x) { return __half2float(x); }
__device__ __forceinline__ float ToFloat(__nv_bfloat16 x) { return __bfloat162float(x); }

// Elements at, at + 1, ... of x; `at` is a multiple of kCount, which is 1 or kVector.
template <int kCount, typename T>
__device__ __forceinline__ void Load(const T* x, int64_t at, float (&out)[kCount]) {
  static_assert(kCount == 1 || kCount == kVector);
  if constexpr (kCount == 1) {
    out[0] = ToFloat(x[at]);
  } else {
    alignas(16) T parts[kCount];
    for (int i = 0; i < static_cast<int>(sizeof(parts) / sizeof(uint4)); ++i) {
      reinterpret_cast<uint4*>(parts)[i] = reinterpret_cast<const uint4*>(x + at)[i];
    }
    for (int i = 0; i < kCount; ++i) out[i] = ToFloat(parts[i]);
  }
}

template <int kCount>
__device__ __forceinline__ void Load(const Array& x, int64_t at, float (&out)[kCount]) {
  if (x.dtype == DType::kF32) {
    Load(static_cast<const float*>(x.data), at, out);
  } else if (x.dtype == DType::kF16) {
    Load(static_cast<const __half*>(x.data), at, out);
  } else {
    Load(static_cast<const __nv_bfloat16*>(x.data), at, out);
  }
}

// What a pointer that WithType gives points to.
template <typename Pointer>
using ElementOf = std::remove_const_t<std::remove_pointer_t<Pointer>>;

// f(x's elements, as a pointer of their type): for kernels that have many loads under way at a
// time, which the compiler does not reorder around a choice of the dtype.
template <typename Function>
cudaError_t WithType(const Array& x, Function&& f) {
  if (x.dtype == DType::kF32) return f(static_cast<const float*>(x.data));
  if (x.dtype == DType::kF16) return f(static_cast<const __half*>(x.data));
  return f(static_cast<const __nv_bfloat16*>(x.data));
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
