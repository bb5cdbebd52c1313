#include "core/kernels/cpu/tile_gemm.h"

#include <immintrin.h>  // AVX

#include <algorithm>

#include "core/kernels/cpu/tile_kernel.h"
#include "glog/logging.h"

namespace lockstep::cpu {
namespace {

static_assert(kLeafGroup == kMostLeaves);

constexpr int64_t CeilDivide(int64_t n, int64_t by) { return (n + by - 1) / by; }
constexpr int64_t RoundUp(int64_t n, int64_t step) { return CeilDivide(n, step) * step; }

// How the columns of b are cut: into as few panels as can be, of widths that differ by at most one
// kColumnStep (64 columns are 32 + 32, not 48 + 16: a narrow panel keeps fewer units busy).
struct Panels {
  explicit Panels(int64_t n) : steps((n + kColumnStep - 1) / kColumnStep), count(RightPanels(n)) {}
  int64_t steps, count;

  int64_t Begin(int64_t panel) const { return steps * panel / count * kColumnStep; }
};

// Transposes 8 rows of 8 elements: to[p * to_stride + j] = from[j * from_stride + p].
[[gnu::always_inline]] inline void TransposeSquare(const float* from, int64_t from_stride,
                                                   float* to, int64_t to_stride) {
  __m256 pairs[8], quads[8];
  for (int j = 0; j < 8; j += 2) {
    const __m256 even = _mm256_loadu_ps(from + j * from_stride);
    const __m256 odd = _mm256_loadu_ps(from + (j + 1) * from_stride);
    pairs[j] = _mm256_unpacklo_ps(even, odd);      // steps 0 1 and 4 5 of rows j, j + 1
    pairs[j + 1] = _mm256_unpackhi_ps(even, odd);  // steps 2 3 and 6 7
  }
  for (int j = 0; j < 8; j += 4) {
    quads[j] = _mm256_shuffle_ps(pairs[j], pairs[j + 2], 0x44);          // steps 0 and 4
    quads[j + 1] = _mm256_shuffle_ps(pairs[j], pairs[j + 2], 0xee);      // 1 and 5
    quads[j + 2] = _mm256_shuffle_ps(pairs[j + 1], pairs[j + 3], 0x44);  // 2 and 6
    quads[j + 3] = _mm256_shuffle_ps(pairs[j + 1], pairs[j + 3], 0xee);  // 3 and 7
  }
  for (int p = 0; p < 4; ++p) {
    _mm256_storeu_ps(to + p * to_stride, _mm256_permute2f128_ps(quads[p], quads[p + 4], 0x20));
    _mm256_storeu_ps(to + (p + 4) * to_stride,
                     _mm256_permute2f128_ps(quads[p], quads[p + 4], 0x31));
  }
}

// to[p * width + j] = from[j * stride + p] for `columns` of kColumnStep columns j, zero in the
// others.
void PackColumns(const float* from, int64_t stride, int64_t columns, int64_t k, float* to,
                 int64_t width) {
  constexpr int kSide = 8;  // of the squares that registers transpose
  columns = std::min<int64_t>(columns, kColumnStep);
  const int64_t whole_k = k / kSide * kSide, whole_columns = columns / kSide * kSide;
  for (int64_t p = 0; p < whole_k; p += kSide) {
    for (int64_t j = 0; j < whole_columns; j += kSide) {
      TransposeSquare(from + j * stride + p, stride, to + p * width + j, width);
    }
  }
  for (int64_t p = 0; p < k; ++p) {
    for (int64_t j = p < whole_k ? whole_columns : 0; j < kColumnStep; ++j) {
      to[p * width + j] = j < columns ? from[j * stride + p] : 0.0f;
    }
  }
}

}  // namespace

int64_t PackedRightSize(int64_t k, int64_t n) { return k * RoundUp(n, kColumnStep); }

PanelRange PanelOf(int64_t n, int64_t panel) {
  const Panels panels(n);
  return {panels.Begin(panel), panels.Begin(panel + 1) - panels.Begin(panel)};
}

int64_t RightPanels(int64_t n) { return (n + kBlockColumns - 1) / kBlockColumns; }

void PackRightRows(const RightRows& rows, int64_t k, int64_t n, int64_t first_panel,
                   int64_t end_panel, float* packed) {
  const MatrixView& b = rows.rows;
  const Panels panels(n);
  for (int64_t panel = first_panel; panel < end_panel; ++panel) {
    const int64_t first = panels.Begin(panel), width = panels.Begin(panel + 1) - first;
    const int64_t columns = std::min(width, n - first);
    float* to = packed + first * k + rows.first * width;
    if (b.transposed == Transpose::kNo) {
      const float* from = b.data + first;
      const int64_t whole = columns / kColumnStep * kColumnStep;
      for (int64_t p = 0; p < rows.count; ++p, to += width, from += b.stride) {
        // Copies of a constant size take no call.
        for (int64_t j = 0; j < whole; j += kColumnStep) std::copy_n(from + j, kColumnStep, to + j);
        std::copy(from + whole, from + columns, to + whole);
        std::fill(to + columns, to + width, 0.0f);
      }
      continue;
    }
    for (int64_t j = 0; j < width; j += kColumnStep) {
      PackColumns(b.data + (first + j) * b.stride, b.stride, std::max<int64_t>(0, columns - j),
                  rows.count, to + j, width);
    }
  }
}

int64_t PackedLeftSize(int64_t m, int64_t k) { return RoundUp(m, kBlockRows) * k; }

void PackLeftTransposed(const float* from, int64_t stride, int64_t m, int64_t k, float* packed) {
  // So few rows of `from` at a time that reading goes along all of them in step, and what is
  // written to each panel makes whole cache lines.
  constexpr int64_t kRows = 8;
  const int64_t whole = m / kBlockRows * kBlockRows;
  for (int64_t first_p = 0; first_p < k; first_p += kRows) {
    const int64_t end_p = std::min(first_p + kRows, k);
    for (int64_t i = 0; i < whole; i += kBlockRows) {
      for (int64_t p = first_p; p < end_p; ++p) {
        std::copy_n(from + p * stride + i, kBlockRows, packed + i * k + p * kBlockRows);
      }
    }
    for (int64_t p = first_p; whole < m && p < end_p; ++p) {
      float* to = packed + whole * k + p * kBlockRows;
      std::copy_n(from + p * stride + whole, m - whole, to);
      std::fill(to + m - whole, to + kBlockRows, 0.0f);
    }
  }
}

void Multiply(const TileProduct& product, InstructionSet instructions) {
  MultiplyPanels(product, 0, RightPanels(product.n), instructions);
}

void MultiplyPanels(const TileProduct& product, int64_t first_panel, int64_t end_panel,
                    InstructionSet instructions) {
  const auto multiply =
      instructions == InstructionSet::kAvx512 ? MultiplyPanelAvx512 : MultiplyPanelAvx2;
  const int64_t packed_k = product.packed_k == 0 ? product.k : product.packed_k;
  const float* const c = product.c;
  DCHECK(product.leaves == 1 || (product.a_stride == 0 && product.k <= kInnerBlock));
  const Panels panels(product.n);
  TilePanel tile;
  tile.m = product.m;
  tile.leaves = product.leaves;
  tile.a_leaf = PackedLeftSize(product.m, product.k);
  tile.b_leaf = PackedRightSize(product.k, product.n);
  tile.a_row = product.a_stride;
  tile.a_panel = product.k * kBlockRows;
  tile.c_row = product.c_stride;
  for (int64_t panel = first_panel; panel < end_panel; ++panel) {
    const int64_t first = panels.Begin(panel), width = panels.Begin(panel + 1) - first;
    const bool last = panel + 1 == end_panel;
    tile.columns = static_cast<int>(std::min(width, product.n - first));
    tile.c = product.c + first;
    tile.addend_offset = first;
    for (int64_t p = 0; p < product.k; p += kInnerBlock) {
      tile.k = std::min(kInnerBlock, product.k - p);
      tile.a = product.a + (product.a_stride == 0 ? p * kBlockRows : p);
      tile.b = product.packed_b + first * packed_k + p * width;
      tile.next_b = tile.b + width * packed_k;
      tile.next_b_lines = static_cast<int>(
          last ? 0 : CeilDivide(width * tile.k / 16, RoundUp(product.m, kBlockRows)));
      // What is to be added is added once; from then on it is c that is added to.
      tile.bias = p == 0 && product.bias != nullptr ? product.bias + first : nullptr;
      tile.addends = p > 0 ? &c : product.addends.data();
      tile.addend_count = p > 0 ? 1 : static_cast<int>(product.addends.size());
      tile.addend_row = p > 0 ? product.c_stride : product.addend_stride;
      multiply(tile);
    }
  }
}

}  // namespace lockstep::cpu
