#pragma once

#include <cstdint>

#include "core/kernels/cpu/tile_kernel.h"  // kBlockRows, kMostLeaves

namespace lockstep::cpu {

// The microkernel for bf16 operands, on processors with AVX512-BF16. The block of c in registers is
// the fp32 microkernel's (tile_kernel.h). The instruction multiplies two neighbouring steps of k at
// once, so packed operands hold pairs: where the fp32 layout has element (p, j), this one has
// elements (2 p, j) and (2 p + 1, j), 32 bits together.

// c[m, columns] = a[m, k] b[k, columns] + start + addends + bias + residual, for one panel of b.
// bf16 elements are held as the upper halves of floats (core/base/half.h).
struct Bf16Panel {
  int64_t m, k;
  // How many products are added up: a power of two, at most kMostLeaves. Their operands lie
  // a_leaf and b_leaf elements apart. Each is made as if alone, and they are added as the leaves of
  // a tree (core/base/sum_tree.h). More than one: a is packed, and start is null.
  int leaves;
  int64_t a_leaf, b_leaf;
  // Element (i, p) at a[i * a_row + p]; or, if a_row is 0, a is packed: panels of kBlockRows rows,
  // a_panel elements apart, with (i, p) at [(p / 2 * kBlockRows + i) * 2 + p % 2].
  const uint16_t* a;
  int64_t a_row, a_panel;
  // [(k + 1) / 2, width, 2], width = columns rounded up to kColumnStep; zeros beyond k and
  // beyond the columns.
  const uint16_t* b;
  int columns;  // 1 .. kBlockColumns
  // Where the result goes, either of the two: fp32 as it is, or bf16, rounded to nearest even.
  float* c;
  uint16_t* c_bf16;
  int64_t c_row;
  const float* start;  // what the chains start from, rows start_row apart; null: zero. May be c.
  int64_t start_row;
  // What is added to the chains, in this order. Each may be null or empty.
  const float* const* addends;  // matrices, rows addend_row apart, each read from addend_offset on
  int addend_count;
  int64_t addend_row, addend_offset;
  const float* bias;         // one row
  const uint16_t* residual;  // rows residual_row apart; may be c_bf16
  int64_t residual_row;
};

// Each element is one chain of fused multiply-adds over p = 1, 0, 3, 2, 5, 4, ..., the order in
// which vdpbf16ps takes a pair. Subnormal numbers count as zero in it.
void MultiplyPanelBf16(const Bf16Panel& panel);

// to[(p / 2 * width + j) * 2 + p % 2] = from[p * stride + j] for p < k and j < columns; zero where
// p = k, if k is odd, and where columns <= j < width. width: a multiple of kColumnStep.
void InterleavePanelBf16(const uint16_t* from, int64_t stride, int64_t k, int columns, int width,
                         uint16_t* to);

// The same for two panels of kBlockRows columns each, `panel` elements apart; columns: 1 to 2
// kBlockRows. Where columns <= kBlockRows, the second panel is not written.
void InterleaveRowsBf16(const uint16_t* from, int64_t stride, int64_t k, int columns, int64_t panel,
                        uint16_t* to);

}  // namespace lockstep::cpu
