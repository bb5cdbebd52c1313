#include "core/kernels/cpu/tile_gemm.h"

#include <algorithm>

#include "core/kernels/cpu/tile_kernel.h"

namespace lockstep::cpu {
namespace {

// Steps of k that a panel of b is taken at once: 256 x 48 floats are 48 KiB... 
#ifndef KC
#define KC 192
#endif
constexpr int64_t kDepth = KC;

int64_t RoundUp(int64_t n, int64_t step) { return (n + step - 1) / step * step; }

// How n columns are cut into panels: as few as possible, of widths that differ by at most one step
// of kColumnStep, so that no narrow one is left over.
struct Panels {
  explicit Panels(int64_t n)
      : steps((n + kColumnStep - 1) / kColumnStep),
        count((n + kBlockColumns - 1) / kBlockColumns) {}
  int64_t steps, count;

  int64_t Begin(int64_t panel) const { return steps * panel / count * kColumnStep; }
};

}  // namespace

InstructionSet WidestInstructionSet() {
  return __builtin_cpu_supports("avx512f") ? InstructionSet::kAvx512 : InstructionSet::kAvx2;
}

int64_t PackedRightSize(int64_t k, int64_t n) { return k * RoundUp(n, kColumnStep); }

void PackRight(const MatrixView& b, int64_t k, int64_t n, float* packed) {
  const Panels panels(n);
  for (int64_t panel = 0; panel < panels.count; ++panel) {
    const int64_t first = panels.Begin(panel), width = panels.Begin(panel + 1) - first;
    const int64_t columns = std::min(width, n - first);
    float* to = packed + first * k;
    if (b.transposed == Transpose::kNo) {
      const float* from = b.data + first;
      for (int64_t p = 0; p < k; ++p, to += width, from += b.stride) {
        std::copy_n(from, columns, to);
        std::fill(to + columns, to + width, 0.0f);
      }
      continue;
    }
    // A cache line of each column at a time.
    constexpr int64_t kLine = 16;
    for (int64_t p = 0; p < k; p += kLine) {
      const int64_t steps = std::min(kLine, k - p);
      for (int64_t j = 0; j < width; ++j) {
        const float* from = b.data + (first + j) * b.stride + p;
        for (int64_t s = 0; s < steps; ++s) to[(p + s) * width + j] = j < columns ? from[s] : 0.0f;
      }
    }
  }
}

int64_t PackedLeftSize(int64_t m, int64_t k) { return RoundUp(m, kBlockRows) * k; }

void PackLeft(const MatrixView& a, int64_t m, int64_t k, float* packed) {
  for (int64_t first_p = 0; first_p < k; first_p += 8) {
    const int64_t end_p = std::min(first_p + 8, k);
    for (int64_t i = 0; i < m; i += kBlockRows) {
      const int64_t rows = std::min<int64_t>(kBlockRows, m - i);
      float* to = packed + i * k;
      if (a.transposed == Transpose::kYes) {
        for (int64_t p = first_p; p < end_p; ++p) {
          const float* from = a.data + p * a.stride + i;
          if (rows == kBlockRows) std::copy_n(from, kBlockRows, to + p * kBlockRows);
          else std::copy_n(from, rows, to + p * kBlockRows);
        }
      } else {
        for (int64_t p = first_p; p < end_p; ++p) {
          for (int64_t r = 0; r < rows; ++r) to[p * kBlockRows + r] = a.data[(i + r) * a.stride + p];
        }
      }
    }
  }
}

void Multiply(const TileProduct& product) {
  const auto run = product.instructions == InstructionSet::kAvx512 ? RunBlockAvx512 : RunBlockAvx2;
  const Panels panels(product.n);
  const bool packed_a = product.a_stride == 0;
  TileBlock block;
  block.a_row = product.a_stride;
  block.c_row = product.c_stride;
  for (int64_t panel = 0; panel < panels.count; ++panel) {
    const int64_t first = panels.Begin(panel), width = panels.Begin(panel + 1) - first;
    block.columns = static_cast<int>(std::min(width, product.n - first));
    for (int64_t p = 0; p < product.k; p += kDepth) {
      block.k = std::min(kDepth, product.k - p);
      block.b = product.packed_b + first * product.k + p * width;
      block.bias = p == 0 && product.bias ? product.bias + first : nullptr;
      const float* addend = p == 0 ? product.addend : product.c;
      block.addend_row = p == 0 ? product.addend_stride : product.c_stride;
      for (int64_t i = 0; i < product.m; i += kBlockRows) {
        block.rows = static_cast<int>(std::min<int64_t>(kBlockRows, product.m - i));
        block.a = packed_a ? product.a + i * product.k + p * kBlockRows
                           : product.a + i * product.a_stride + p;
        block.c = product.c + i * product.c_stride + first;
        block.addend = addend ? addend + i * block.addend_row + first : nullptr;
        block.next_c = block.c;
#ifndef NOC
        if (i + kBlockRows < product.m) block.next_c = block.c + kBlockRows * block.c_row;
        else if (panel + 1 < panels.count) block.next_c = product.c + first + width;
#endif
        block.next_b_lines = 0;
#ifndef NOB
        if (panel + 1 < panels.count) {
          const int64_t lines = width * block.k / 16;
          const int64_t from = lines * i / product.m, to = lines * (i + 8) / product.m;
          block.next_b = block.b + width * product.k + from * 16;
          block.next_b_lines = to - from;
        }
#endif
        run(block);
      }
    }
  }
}

}  // namespace lockstep::cpu
