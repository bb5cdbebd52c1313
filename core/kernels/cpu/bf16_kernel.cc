// Compiled for AVX512-BF16. Nothing here may include a header with inline functions, intrinsics
// aside: the linker would be free to keep the copy that was compiled for this set.

#include "core/kernels/cpu/bf16_kernel.h"

#include <immintrin.h>

namespace lockstep::cpu {
namespace {

constexpr int kWidth = 16;  // floats, or pairs of bf16, in a register

__mmask16 First(int64_t count) {
  return static_cast<__mmask16>(count >= kWidth ? 0xffff : count <= 0 ? 0 : (1 << count) - 1);
}

// A pair of neighbouring bf16 elements, wherever they lie.
int32_t Pair(const uint16_t* p) {
  int32_t pair;
  __builtin_memcpy(&pair, p, sizeof(pair));
  return pair;
}

__m512 MultiplyAdd(__m512i a, __m512i b, __m512 sum) {
  return _mm512_dpbf16_ps(sum, reinterpret_cast<__m512bh>(a), reinterpret_cast<__m512bh>(b));
}

__m512 ToFloats(__m256i bf16) {
  return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(bf16), 16));
}

// As FloatToBFloat16: the instruction for it would round subnormal numbers to zero.
__m256i ToBf16(__m512 x) {
  const __m512i bits = _mm512_castps_si512(x);
  const __m512i odd = _mm512_and_si512(_mm512_srli_epi32(bits, 16), _mm512_set1_epi32(1));
  const __m512i rounded = _mm512_add_epi32(bits, _mm512_add_epi32(odd, _mm512_set1_epi32(0x7fff)));
  const __mmask16 is_nan = _mm512_cmp_ps_mask(x, x, _CMP_UNORD_Q);
  const __m512i result = _mm512_mask_or_epi32(rounded, is_nan, bits, _mm512_set1_epi32(0x400000));
  return _mm512_cvtepi32_epi16(_mm512_srli_epi32(result, 16));
}

// A block of c in registers, once the loops over i and j are unrolled.
template <int kVectors>
struct Block {
  __m512 sums[kBlockRows][kVectors] = {};
};

// Where pair p of row i of a lies, for a block of rows.
struct RowsOfA {
  const uint16_t* row[kBlockRows];
  RowsOfA(const Bf16Panel& panel, int /*leaf*/, int64_t first, int rows) {
    // Rows that do not exist repeat the last one.
    for (int i = 0; i < kBlockRows; ++i) {
      row[i] = panel.a + (first + (i < rows ? i : rows - 1)) * panel.a_row;
    }
  }
  const uint16_t* At(int i, int64_t pair) const { return row[i] + 2 * pair; }
  // The last element of an odd number of them: what follows it may be anything.
  __m512i Last(int i, int64_t pair) const { return _mm512_set1_epi32(*At(i, pair)); }
};
struct PanelOfA {
  const uint16_t* data;
  PanelOfA(const Bf16Panel& panel, int leaf, int64_t first, int /*rows*/)
      : data(panel.a + leaf * panel.a_leaf + first / kBlockRows * panel.a_panel) {}
  const uint16_t* At(int i, int64_t pair) const { return data + 2 * (pair * kBlockRows + i); }
  __m512i Last(int i, int64_t pair) const { return _mm512_set1_epi32(Pair(At(i, pair))); }
};

template <int kVectors>
[[gnu::always_inline]] inline void LoadB(const uint16_t* b, int64_t pair,
                                         __m512i (&row)[kVectors]) {
#pragma GCC unroll 3
  for (int j = 0; j < kVectors; ++j) {
    row[j] = _mm512_loadu_si512(b + 2 * (pair * kVectors + j) * kWidth);
  }
}

// block += columns 2 pair and 2 pair + 1 of a times these rows of b
template <int kVectors, typename A>
[[gnu::always_inline]] inline void Step(const A& a, const uint16_t* b, int64_t pair,
                                        Block<kVectors>& block) {
  __m512i row[kVectors];
  LoadB(b, pair, row);
#pragma GCC unroll 8
  for (int i = 0; i < kBlockRows; ++i) {
    const __m512i elements = _mm512_set1_epi32(Pair(a.At(i, pair)));
#pragma GCC unroll 3
    for (int j = 0; j < kVectors; ++j) {
      block.sums[i][j] = MultiplyAdd(elements, row[j], block.sums[i][j]);
    }
  }
}

// Asks for what Store will read and write of a row.
template <int kVectors>
[[gnu::always_inline]] inline void FetchRow(const Bf16Panel& panel, int64_t row) {
  constexpr int kLine = 16;  // floats
  if (panel.c_bf16 != nullptr) {
    const uint16_t* c = panel.c_bf16 + row * panel.c_row;
    for (int j = 0; j < kVectors * kWidth; j += 2 * kLine) __builtin_prefetch(c + j, 1);
  } else {
    const float* c = panel.c + row * panel.c_row;
    for (int j = 0; j < kVectors * kWidth; j += kLine) __builtin_prefetch(c + j, 1);
  }
  for (int i = 0; i < panel.addend_count; ++i) {
    const float* addend = panel.addends[i] + panel.addend_offset + row * panel.addend_row;
    for (int j = 0; j < kVectors * kWidth; j += kLine) __builtin_prefetch(addend + j);
  }
  if (panel.residual != nullptr) {
    const uint16_t* residual = panel.residual + row * panel.residual_row;
    for (int j = 0; j < kVectors * kWidth; j += 2 * kLine) __builtin_prefetch(residual + j);
  }
}

// block += a b, with the first `fetched` rows of what Store will need fetched meanwhile. The loops
// over pairs stay as short as they are: unrolled, they outgrow the processor's loop
// buffer.
template <int kVectors, typename A>
[[gnu::always_inline]] inline void Sum(const Bf16Panel& panel, const A a, const uint16_t* b,
                                       int64_t first, int fetched, Block<kVectors>& block) {
  const int64_t pairs = panel.k / 2;
  int64_t pair = 0;
  // A weight's gradient, for one, is far away: its rows come while the block is made, one at a
  // time, lest they crowd out those of a and b.
  constexpr int kSteps = 6;
  if (pairs > kBlockRows * kSteps) {
    for (int i = 0; i < fetched; ++i) {
      FetchRow<kVectors>(panel, first + i);
      const int64_t end = pair + kSteps;
#pragma GCC unroll 1
      for (; pair < end; ++pair) Step(a, b, pair, block);
    }
  }
#pragma GCC unroll 1
  for (; pair < pairs; ++pair) Step(a, b, pair, block);
  if (panel.k % 2 == 0) return;
  __m512i row[kVectors];
  LoadB(b, pairs, row);
#pragma GCC unroll 8
  for (int i = 0; i < kBlockRows; ++i) {
    const __m512i elements = a.Last(i, pairs);
#pragma GCC unroll 3
    for (int j = 0; j < kVectors; ++j) {
      block.sums[i][j] = MultiplyAdd(elements, row[j], block.sums[i][j]);
    }
  }
}

// Which columns of each vector exist.
template <int kVectors>
[[gnu::always_inline]] inline void Masks(const Bf16Panel& panel, __mmask16 (&masks)[kVectors]) {
#pragma GCC unroll 3
  for (int j = 0; j < kVectors; ++j) masks[j] = First(panel.columns - j * kWidth);
}

// The block's first rows = those of panel.start
template <int kVectors>
[[gnu::always_inline]] inline void Start(const Bf16Panel& panel, int64_t first, int rows,
                                         Block<kVectors>& block) {
  __mmask16 masks[kVectors];
  Masks(panel, masks);
  const float* start = panel.start + first * panel.start_row;
#pragma GCC unroll 8
  for (int i = 0; i < kBlockRows; ++i, start += panel.start_row) {
    if (i >= rows) break;
#pragma GCC unroll 3
    for (int j = 0; j < kVectors; ++j) {
      block.sums[i][j] = _mm512_maskz_loadu_ps(masks[j], start + j * kWidth);
    }
  }
}

// The block's first rows += those of a matrix
template <int kVectors>
[[gnu::always_inline]] inline void AddRows(const float* from, int64_t stride, int rows,
                                           const __mmask16 (&masks)[kVectors],
                                           Block<kVectors>& block) {
#pragma GCC unroll 8
  for (int i = 0; i < kBlockRows; ++i, from += stride) {
    if (i >= rows) break;
#pragma GCC unroll 3
    for (int j = 0; j < kVectors; ++j) {
      block.sums[i][j] =
          _mm512_add_ps(block.sums[i][j], _mm512_maskz_loadu_ps(masks[j], from + j * kWidth));
    }
  }
}

// The block's first rows of c = block + addends + bias + residual
template <int kVectors>
[[gnu::always_inline]] inline void Store(const Bf16Panel& panel, int64_t first, int rows,
                                         Block<kVectors>& block) {
  __mmask16 masks[kVectors];
  Masks(panel, masks);
  for (int i = 0; i < panel.addend_count; ++i) {
    AddRows<kVectors>(panel.addends[i] + panel.addend_offset + first * panel.addend_row,
                      panel.addend_row, rows, masks, block);
  }
  if (panel.bias != nullptr) {
#pragma GCC unroll 3
    for (int j = 0; j < kVectors; ++j) {
      const __m512 bias = _mm512_maskz_loadu_ps(masks[j], panel.bias + j * kWidth);
#pragma GCC unroll 8
      for (int i = 0; i < kBlockRows; ++i) {
        block.sums[i][j] = _mm512_add_ps(block.sums[i][j], bias);
      }
    }
  }
  if (panel.residual != nullptr) {
    const uint16_t* residual = panel.residual + first * panel.residual_row;
#pragma GCC unroll 8
    for (int i = 0; i < kBlockRows; ++i, residual += panel.residual_row) {
      if (i >= rows) break;
#pragma GCC unroll 3
      for (int j = 0; j < kVectors; ++j) {
        block.sums[i][j] = _mm512_add_ps(
            block.sums[i][j], ToFloats(_mm256_maskz_loadu_epi16(masks[j], residual + j * kWidth)));
      }
    }
  }
  if (panel.c_bf16 != nullptr) {
    uint16_t* c = panel.c_bf16 + first * panel.c_row;
#pragma GCC unroll 8
    for (int i = 0; i < kBlockRows; ++i, c += panel.c_row) {
      if (i >= rows) break;
#pragma GCC unroll 3
      for (int j = 0; j < kVectors; ++j) {
        _mm256_mask_storeu_epi16(c + j * kWidth, masks[j], ToBf16(block.sums[i][j]));
      }
    }
    return;
  }
  float* c = panel.c + first * panel.c_row;
#pragma GCC unroll 8
  for (int i = 0; i < kBlockRows; ++i, c += panel.c_row) {
    if (i >= rows) break;
#pragma GCC unroll 3
    for (int j = 0; j < kVectors; ++j) {
      _mm512_mask_storeu_ps(c + j * kWidth, masks[j], block.sums[i][j]);
    }
  }
}

// What is added up of the leaves before the last: nodes of the tree, the latest on top. It lies in
// the first-level cache.
template <int kVectors>
struct Nodes {
  static constexpr int kMost = 2;  // nodes of 2 and 1 leaves wait for the last of 4
  static_assert(1 << kMost == kMostLeaves);
  alignas(64) float sums[kMost][kBlockRows][kVectors][kWidth];
  int count = 0;

  [[gnu::always_inline]] void Push(const Block<kVectors>& block) {
#pragma GCC unroll 8
    for (int i = 0; i < kBlockRows; ++i) {
#pragma GCC unroll 3
      for (int j = 0; j < kVectors; ++j) _mm512_store_ps(sums[count][i][j], block.sums[i][j]);
    }
    ++count;
  }
  [[gnu::always_inline]] void PopInto(Block<kVectors>& block) {
    --count;
#pragma GCC unroll 8
    for (int i = 0; i < kBlockRows; ++i) {
#pragma GCC unroll 3
      for (int j = 0; j < kVectors; ++j) {
        block.sums[i][j] = _mm512_add_ps(block.sums[i][j], _mm512_load_ps(sums[count][i][j]));
      }
    }
  }
};

template <int kVectors, typename A>
void MultiplyRows(const Bf16Panel& panel) {
  for (int64_t first = 0; first < panel.m; first += kBlockRows) {
    const int rows = panel.m - first < kBlockRows ? static_cast<int>(panel.m - first) : kBlockRows;
    Nodes<kVectors> nodes;
    for (int leaf = 0; leaf < panel.leaves; ++leaf) {
      const bool last = leaf + 1 == panel.leaves;
      Block<kVectors> block;
      if (panel.start != nullptr) Start(panel, first, rows, block);
      Sum(panel, A(panel, leaf, first, rows), panel.b + leaf * panel.b_leaf, first, last ? rows : 0,
          block);
      // A leaf completes as many nodes as its number, from one, has zeros at its end.
      for (int merged = __builtin_ctz(leaf + 1); merged > 0; --merged) nodes.PopInto(block);
      if (last) {
        Store(panel, first, rows, block);
      } else {
        nodes.Push(block);
      }
    }
  }
}

// Rows p and p + 1 of `from`, 16 columns, as pairs.
__m512i Interleave(const uint16_t* from, int64_t stride, int64_t p, int64_t k, __mmask16 mask) {
  const __m512i even = _mm512_cvtepu16_epi32(_mm256_maskz_loadu_epi16(mask, from + p * stride));
  if (p + 1 == k) return even;
  const __m512i odd =
      _mm512_cvtepu16_epi32(_mm256_maskz_loadu_epi16(mask, from + (p + 1) * stride));
  return _mm512_or_si512(even, _mm512_slli_epi32(odd, 16));
}

}  // namespace

void MultiplyPanelBf16(const Bf16Panel& panel) {
  const int vectors = (panel.columns + kColumnStep - 1) / kColumnStep;
  if (panel.a_row == 0) {
    if (vectors == 3) return MultiplyRows<3, PanelOfA>(panel);
    if (vectors == 2) return MultiplyRows<2, PanelOfA>(panel);
    return MultiplyRows<1, PanelOfA>(panel);
  }
  if (vectors == 3) return MultiplyRows<3, RowsOfA>(panel);
  if (vectors == 2) return MultiplyRows<2, RowsOfA>(panel);
  return MultiplyRows<1, RowsOfA>(panel);
}

void InterleavePanelBf16(const uint16_t* from, int64_t stride, int64_t k, int columns, int width,
                         uint16_t* to) {
  for (int64_t p = 0; p < k; p += 2, to += 2 * width) {
    for (int j = 0; j < width; j += kWidth) {
      _mm512_storeu_si512(to + 2 * j, Interleave(from + j, stride, p, k, First(columns - j)));
    }
  }
}

void InterleaveRowsBf16(const uint16_t* from, int64_t stride, int64_t k, int columns, int64_t panel,
                        uint16_t* to) {
  const __mmask16 mask = First(columns);
  const bool both = columns > kBlockRows;
  for (int64_t p = 0; p < k; p += 2, to += 2 * kBlockRows) {
    const __m512i pairs = Interleave(from, stride, p, k, mask);
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(to), _mm512_castsi512_si256(pairs));
    if (both) {
      _mm256_storeu_si256(reinterpret_cast<__m256i*>(to + panel),
                          _mm512_extracti64x4_epi64(pairs, 1));
    }
  }
}

}  // namespace lockstep::cpu
