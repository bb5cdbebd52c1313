#include <immintrin.h>

#include "core/kernels/cpu/tile_kernel.h"

namespace {

struct Vector {
  using Type = __m256;
  static constexpr int kWidth = 8;
  static Type Load(const float* p) { return _mm256_loadu_ps(p); }
  static Type Broadcast(const float* p) { return _mm256_broadcast_ss(p); }
  static Type Add(Type a, Type b) { return _mm256_add_ps(a, b); }
  static Type MultiplyAdd(Type a, Type b, Type c) { return _mm256_fmadd_ps(a, b, c); }
  // Only elements of the mask are touched in memory.
  using Mask = __m256i;
  static Mask First(int count) {
    return _mm256_cmpgt_epi32(_mm256_set1_epi32(count), _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7));
  }
  static Type Load(const float* p, Mask mask) { return _mm256_maskload_ps(p, mask); }
  static void StoreAligned(float* p, Type v) { _mm256_store_ps(p, v); }
  static void Store(float* p, Mask mask, Type v) { _mm256_maskstore_ps(p, mask, v); }
};

}  // namespace

#include "core/kernels/cpu/tile_kernel.inc"

namespace lockstep::cpu {

// Half a panel at a time.
void MultiplyPanelAvx2(const TilePanel& panel) {
  const int vectors = (panel.columns + kColumnStep - 1) / kColumnStep;
  const int width = vectors * Vector::kWidth;
  TilePanel half = panel;
  half.columns = panel.columns < width ? panel.columns : width;
  MultiplyPanel<kBlockRows / 2>(half, vectors);
  if (panel.columns <= width) return;
  half.columns = panel.columns - width;
  half.b += width;
  half.c += width;
  if (half.bias != nullptr) half.bias += width;
  half.addend_offset += width;
  half.next_b_lines = 0;
  MultiplyPanel<kBlockRows / 2>(half, vectors);
}

}  // namespace lockstep::cpu
