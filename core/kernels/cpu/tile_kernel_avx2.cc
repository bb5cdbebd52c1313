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
  static void Store(float* p, Mask mask, Type v) { _mm256_maskstore_ps(p, mask, v); }
};

}  // namespace

#include "core/kernels/cpu/tile_kernel.inc"

namespace lockstep::cpu {

void RunBlockAvx2(const TileBlock& block) {
  constexpr int kRows = kBlockRows / 2;
  const int vectors = (block.columns + kColumnStep - 1) / kColumnStep;
  const int width = vectors * Vector::kWidth;
  for (int first_row = 0; first_row < block.rows; first_row += kRows) {
    for (int first = 0; first < block.columns; first += width) {
      TileBlock part = block;
      part.a += first_row * (block.a_row == 0 ? 1 : block.a_row);
      part.b += first;
      part.c += first_row * block.c_row + first;
      part.next_c += first_row * block.c_row + first;
      if (first_row > 0 || first > 0) part.next_b_lines = 0;
      if (part.addend) part.addend += first_row * block.addend_row + first;
      if (part.bias) part.bias += first;
      part.columns = block.columns - first < width ? block.columns - first : width;
      part.rows = block.rows - first_row < kRows ? block.rows - first_row : kRows;
      switch (vectors) {
        case 1: Multiply<kRows, 1>(part); break;
        case 2: Multiply<kRows, 2>(part); break;
        default: Multiply<kRows, 3>(part); break;
      }
    }
  }
}

}  // namespace lockstep::cpu
