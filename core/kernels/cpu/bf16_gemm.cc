#include "core/kernels/cpu/bf16_gemm.h"

#include <emmintrin.h>  // SSE2, which every x86-64 has

#include <algorithm>

#include "core/kernels/cpu/bf16_kernel.h"
#include "core/kernels/cpu/tile_gemm.h"  // PanelOf, RightPanels

namespace lockstep::cpu {
namespace {

// Steps of k between two visits of a block of c: the more, the rarer the visits. So many steps of a
// panel of b (192 KiB) are swept by all rows of a from the second-level cache, whose bandwidth is
// no limit.
constexpr int64_t kDepth = 2048;

static_assert(kLeafGroup == kMostLeaves);

// Rows of a that share the scratch of a chain that goes on.
constexpr int64_t kScratchRows = 128;

constexpr int64_t CeilDivide(int64_t n, int64_t by) { return (n + by - 1) / by; }
constexpr int64_t RoundUp(int64_t n, int64_t step) { return CeilDivide(n, step) * step; }

// Two neighbouring elements as 32 bits.
uint32_t Pair(const Bf16* from) { return from[0] | static_cast<uint32_t>(from[1]) << 16; }
void StorePair(uint32_t pair, Bf16* to) {
  to[0] = static_cast<Bf16>(pair);
  to[1] = static_cast<Bf16>(pair >> 16);
}

// Pairs (2 p, 2 p + 1) of `columns` of kColumnStep columns: to[2 (p * width + j)] and the next
// = from[j * stride + 2 p] and the next; zero in the other columns and beyond k.
void PackColumns(const Bf16* from, int64_t stride, int64_t columns, int64_t k, Bf16* to,
                 int64_t width) {
  constexpr int64_t kSide = 4;  // of the squares of pairs that registers transpose
  columns = std::min<int64_t>(columns, kColumnStep);
  const int64_t pairs = (k + 1) / 2;
  const int64_t whole_pairs = k / 2 / kSide * kSide, whole_columns = columns / kSide * kSide;
  for (int64_t p = 0; p < whole_pairs; p += kSide) {
    for (int64_t j = 0; j < whole_columns; j += kSide) {
      __m128 rows[kSide];  // of bits, not of numbers
      for (int r = 0; r < kSide; ++r) {
        rows[r] = _mm_castsi128_ps(
            _mm_loadu_si128(reinterpret_cast<const __m128i*>(from + (j + r) * stride + 2 * p)));
      }
      _MM_TRANSPOSE4_PS(rows[0], rows[1], rows[2], rows[3]);
      for (int r = 0; r < kSide; ++r) {
        _mm_storeu_si128(reinterpret_cast<__m128i*>(to + 2 * ((p + r) * width + j)),
                         _mm_castps_si128(rows[r]));
      }
    }
  }
  for (int64_t p = 0; p < pairs; ++p) {
    for (int64_t j = p < whole_pairs ? whole_columns : 0; j < kColumnStep; ++j) {
      const Bf16* column = from + j * stride + 2 * p;
      StorePair(j >= columns    ? 0
                : 2 * p + 1 < k ? Pair(column)
                                : *column,
                to + 2 * (p * width + j));
    }
  }
}

// The product of one panel of b with `rows` rows of a from first_row on, at most kScratchRows.
void MultiplyPanel(const Bf16Product& product, const PanelRange& panel, int64_t first_row,
                   int64_t rows) {
  const int64_t padded_k = RoundUp(product.k, 2);
  const auto [first, width] = panel;
  const Bf16* a = product.a + first_row * (product.a_stride == 0 ? padded_k : product.a_stride);
  const Bf16* b = product.packed_b + first * padded_k;
  Bf16Panel tile = {};
  tile.m = rows;
  tile.leaves = product.leaves;
  tile.a_leaf = PackedBf16LeftSize(product.m, product.k);
  tile.b_leaf = PackedBf16RightSize(product.k, product.n);
  tile.a_row = product.a_stride;
  tile.a_panel = padded_k * kBlockRows;
  tile.columns = static_cast<int>(std::min(width, product.n - first));
  if (product.start != nullptr) {
    tile.start = product.start + first_row * product.start_stride + first;
    tile.start_row = product.start_stride;
  }
  int64_t p = 0;
  const auto multiply = [&](int64_t k) {
    tile.k = k;
    tile.a = a + (product.a_stride == 0 ? p * kBlockRows : p);
    tile.b = b + p * panel.width;
    MultiplyPanelBf16(tile);
  };
  alignas(64) float scratch[kScratchRows * kBlockColumns];
  for (; product.leaves == 1 && p + kDepth < product.k; p += kDepth) {
    tile.c = scratch;
    tile.c_row = kBlockColumns;
    multiply(kDepth);
    tile.start = scratch;
    tile.start_row = kBlockColumns;
  }
  const int64_t offset = first_row * product.c_stride + first;
  tile.c = product.c_bf16 == nullptr ? product.c + offset : nullptr;
  tile.c_bf16 = product.c_bf16 == nullptr ? nullptr : product.c_bf16 + offset;
  tile.c_row = product.c_stride;
  tile.addends = product.addends.data();
  tile.addend_count = static_cast<int>(product.addends.size());
  tile.addend_row = product.addend_stride;
  tile.addend_offset = first_row * product.addend_stride + first;
  tile.bias = product.bias == nullptr ? nullptr : product.bias + first;
  if (product.residual != nullptr) {
    tile.residual = product.residual + first_row * product.residual_stride + first;
    tile.residual_row = product.residual_stride;
  }
  multiply(product.k - p);
}

}  // namespace

bool HasBf16Instructions() {
  return __builtin_cpu_supports("avx512bf16") && __builtin_cpu_supports("avx512bw") &&
         __builtin_cpu_supports("avx512vl");
}

int64_t PackedBf16RightSize(int64_t k, int64_t n) {
  return RoundUp(k, 2) * RoundUp(n, kColumnStep);
}

void PackBf16Right(const Bf16View& b, int64_t k, int64_t n, int64_t first_panel, int64_t end_panel,
                   Bf16* packed) {
  for (int64_t panel = first_panel; panel < end_panel; ++panel) {
    const auto [first, width] = PanelOf(n, panel);
    const int64_t columns = std::min(width, n - first);
    Bf16* to = packed + first * RoundUp(k, 2);
    if (b.transposed == Transpose::kNo) {
      InterleavePanelBf16(b.data + first, b.stride, k, static_cast<int>(columns),
                          static_cast<int>(width), to);
      continue;
    }
    for (int64_t j = 0; j < width; j += kColumnStep) {
      PackColumns(b.data + (first + j) * b.stride, b.stride, std::max<int64_t>(0, columns - j), k,
                  to + 2 * j, width);
    }
  }
}

void PackBf16Right(const Bf16View& b, int64_t k, int64_t n, Bf16* packed) {
  PackBf16Right(b, k, n, 0, RightPanels(n), packed);
}

int64_t PackedBf16LeftSize(int64_t m, int64_t k) { return RoundUp(m, kBlockRows) * RoundUp(k, 2); }

void PackBf16LeftTransposed(const Bf16* from, int64_t stride, int64_t m, int64_t k, Bf16* packed) {
  const int64_t panel = RoundUp(k, 2) * kBlockRows;
  for (int64_t i = 0; i < m; i += 2 * kBlockRows) {
    InterleaveRowsBf16(from + i, stride, k,
                       static_cast<int>(std::min<int64_t>(2 * kBlockRows, m - i)), panel,
                       packed + i / kBlockRows * panel);
  }
}

void MultiplyBf16(const Bf16Product& product) {
  MultiplyBf16Panels(product, 0, RightPanels(product.n));
}

void MultiplyBf16Panels(const Bf16Product& product, int64_t first_panel, int64_t end_panel) {
  for (int64_t panel = first_panel; panel < end_panel; ++panel) {
    for (int64_t row = 0; row < product.m; row += kScratchRows) {
      MultiplyPanel(product, PanelOf(product.n, panel), row,
                    std::min(kScratchRows, product.m - row));
    }
  }
}

}  // namespace lockstep::cpu
