// Tensor cores, and what feeds them, as every GPU from sm_80 on has them (PTX ISA, "Warp Level
// Matrix Multiply-Accumulate Instructions" and "Asynchronous copy"). A function is one instruction;
// those that take a lane's part of a matrix are called by all lanes of a warp.
//
// Matrices of 16-bit elements lie across a warp in registers of two elements, the first in the low
// half. With g = lane / 4 and t = lane % 4, lane has of
//
//   an 8 x 8 matrix     its row g, columns 2t and 2t + 1;
//   a[16, 16]           register 0: row g, columns 2t, 2t + 1; 1: row g + 8; 2: row g, eight
//   columns
//                       on; 3: row g + 8, eight columns on;
//   b[16, 8]            register 0: rows 2t, 2t + 1 of column g; 1: eight rows on;
//   d[16, 8], in fp32   elements 0, 1: row g, columns 2t, 2t + 1; 2, 3: row g + 8.
//
// Two d side by side, rounded and packed, are therefore an a: products chain without leaving the
// registers.

#pragma once

#include <cstdint>

#include "cuda_bf16.h"
#include "cuda_fp16.h"
#include "cuda_runtime.h"

namespace lockstep::cuda {

// d += a b
template <typename T>
__device__ __forceinline__ void MultiplyAdd(const uint32_t (&a)[4], uint32_t b0, uint32_t b1,
                                            float (&d)[4]);

template <>
__device__ __forceinline__ void MultiplyAdd<__nv_bfloat16>(const uint32_t (&a)[4], uint32_t b0,
                                                           uint32_t b1, float (&d)[4]) {
  asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 "
      "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

template <>
__device__ __forceinline__ void MultiplyAdd<__half>(const uint32_t (&a)[4], uint32_t b0,
                                                    uint32_t b1, float (&d)[4]) {
  asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 "
      "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

__device__ __forceinline__ uint32_t SharedAddress(const void* shared) {
  return static_cast<uint32_t>(__cvta_generic_to_shared(shared));
}

// Four 8 x 8 matrices from shared memory, one register each. Lanes 8 i to 8 i + 7 say where the
// rows of matrix i begin: at multiples of 16 bytes.
__device__ __forceinline__ void LoadMatrices(const void* row, uint32_t (&x)[4]) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(x[0]), "=r"(x[1]), "=r"(x[2]), "=r"(x[3])
               : "r"(SharedAddress(row))
               : "memory");
}

// The same, each matrix transposed on the way.
__device__ __forceinline__ void LoadMatricesTransposed(const void* row, uint32_t (&x)[4]) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(x[0]), "=r"(x[1]), "=r"(x[2]), "=r"(x[3])
               : "r"(SharedAddress(row))
               : "memory");
}

// Begins to copy 16 bytes from device memory to shared memory, past the registers and the first
// cache; zeros, without reading, unless `exists`.
__device__ __forceinline__ void Copy16(void* shared, const void* from, bool exists) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(SharedAddress(shared)),
               "l"(from), "r"(exists ? 16 : 0)
               : "memory");
}

__device__ __forceinline__ void Copy4(void* shared, const void* from, bool exists) {
  asm volatile("cp.async.ca.shared.global [%0], [%1], 4, %2;" ::"r"(SharedAddress(shared)),
               "l"(from), "r"(exists ? 4 : 0)
               : "memory");
}

// Waits until what the calling thread began to copy is there, for itself; for others to see it, a
// barrier must follow.
__device__ __forceinline__ void WaitForCopies() { asm volatile("cp.async.wait_all;" ::: "memory"); }

// 2^x within two units in the last place; results below the normal numbers are 0.
__device__ __forceinline__ float Exp2(float x) {
  float result;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(result) : "f"(x));
  return result;
}

// Two elements, each rounded to the nearest.
template <typename T>
__device__ __forceinline__ uint32_t Pack(float low, float high);

template <>
__device__ __forceinline__ uint32_t Pack<__nv_bfloat16>(float low, float high) {
  uint32_t packed;
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(packed) : "f"(high), "f"(low));
  return packed;
}

template <>
__device__ __forceinline__ uint32_t Pack<__half>(float low, float high) {
  uint32_t packed;
  asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(packed) : "f"(high), "f"(low));
  return packed;
}

}  // namespace lockstep::cuda
