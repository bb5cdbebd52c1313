#include <immintrin.h>

#include "core/kernels/cpu/tile_kernel.h"

namespace {

struct Vector {
  using Type = __m512;
  static constexpr int kWidth = 16;
  static Type Load(const float* p) { return _mm512_loadu_ps(p); }
  static Type Broadcast(const float* p) { return _mm512_set1_ps(*p); }
  static Type Add(Type a, Type b) { return _mm512_add_ps(a, b); }
  static void MultiplyAdd(Type a, Type b, Type& sum) {
    asm("vfmadd231ps %2, %1, %0" : "+v"(sum) : "v"(a), "v"(b));
  }
  // The first `count` elements, 1 .. kWidth; nothing beyond is touched.
  static Type LoadFirst(const float* p, int count) { return _mm512_maskz_loadu_ps(Mask(count), p); }
  static void StoreFirst(float* p, int count, Type v) { _mm512_mask_storeu_ps(p, Mask(count), v); }
  static __mmask16 Mask(int count) { return static_cast<__mmask16>(0xffff >> (16 - count)); }
};

}  // namespace

#include "core/kernels/cpu/tile_kernel.inc"

namespace lockstep::cpu {

void RunBlockAvx512(const TileBlock& block) {
  switch ((block.columns + kColumnStep - 1) / kColumnStep) {
    case 1: return Multiply<kBlockRows, 1>(block);
    case 2: return Multiply<kBlockRows, 2>(block);
    default: return Multiply<kBlockRows, 3>(block);
  }
}

}  // namespace lockstep::cpu
