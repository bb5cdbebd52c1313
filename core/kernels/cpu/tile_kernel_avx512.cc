#include <immintrin.h>

#include "core/kernels/cpu/tile_kernel.h"

namespace {

struct Vector {
  using Type = __m512;
  static constexpr int kWidth = 16;
  static Type Load(const float* p) { return _mm512_loadu_ps(p); }
  static Type Broadcast(const float* p) { return _mm512_set1_ps(*p); }
  static Type Add(Type a, Type b) { return _mm512_add_ps(a, b); }
  static Type MultiplyAdd(Type a, Type b, Type c) { return _mm512_fmadd_ps(a, b, c); }
  // Only elements of the mask are touched in memory.
  using Mask = __mmask16;
  static Mask First(int count) {
    return static_cast<Mask>(count >= kWidth ? 0xffff : (1 << count) - 1);
  }
  static Type Load(const float* p, Mask mask) { return _mm512_maskz_loadu_ps(mask, p); }
  static void StoreAligned(float* p, Type v) { _mm512_store_ps(p, v); }
  static void Store(float* p, Mask mask, Type v) { _mm512_mask_storeu_ps(p, mask, v); }
};

}  // namespace

#include "core/kernels/cpu/tile_kernel.inc"

namespace lockstep::cpu {

void MultiplyPanelAvx512(const TilePanel& panel) {
  MultiplyPanel<kBlockRows>(panel, (panel.columns + kColumnStep - 1) / kColumnStep);
}

}  // namespace lockstep::cpu
