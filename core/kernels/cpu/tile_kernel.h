#pragma once

#include <cstdint>

namespace lockstep::cpu {

// The block of c that a microkernel keeps in registers, and after which packed operands are laid
// out, whatever the instruction set: AVX-512 holds 8 x 48 in 24 of its 32 registers; AVX2 makes it
// of four blocks of 4 x 24, 12 of its 16 registers each. Either has room for a row of b and one
// element of a beside it, and loads half a register or less for each multiply-add: the load ports
// keep up.
inline constexpr int kBlockRows = 8;
inline constexpr int kBlockColumns = 48;
// Panels of b may be narrower than that by multiples of this: a register of AVX-512, two of AVX2.
inline constexpr int kColumnStep = 16;

// The most products that are added up while they are in registers and the first-level cache.
inline constexpr int kMostLeaves = 4;

// c[m, columns] = a[m, k] b[k, columns] + bias + the addends, for one panel of b.
struct TilePanel {
  int64_t m, k;
  // Number of products that are added up: a power of two, at most kMostLeaves. The operands of two
  // neighbouring products lie a_leaf and b_leaf floats apart. Each product is made as if alone, and
  // all are added as the leaves of a tree (core/base/sum_tree.h). With more than one, a is packed.
  int leaves;
  int64_t a_leaf, b_leaf;
  // Element (i, p) lies at a[i * a_row + p]; or, if a_row is 0, a is packed: panels of kBlockRows
  // rows, a_panel apart, with (i, p) at [p * kBlockRows + i].
  const float* a;
  int64_t a_row, a_panel;
  // [k, width], width = columns rounded up to kColumnStep; zeros beyond the columns.
  const float* b;
  int columns;  // 1 .. kBlockColumns
  float* c;
  int64_t c_row;
  const float* bias;  // one row, or null
  // Added in order; the panel's first element of each lies at addends[i][addend_offset], and its
  // rows are addend_row apart. One of them may be c.
  const float* const* addends;
  int addend_count;
  int64_t addend_offset, addend_row;
  // What will be read as b after this: each block of rows fetches a fraction, eight times so many
  // cache lines, into the second-level cache meanwhile.
  const float* next_b;
  int next_b_lines;
};

// Each element is one chain of fused multiply-adds over p = 0, 1, ... from zero, to which bias and
// then each addend are added: both instruction sets give the same bits.
void MultiplyPanelAvx2(const TilePanel& panel);
void MultiplyPanelAvx512(const TilePanel& panel);

}  // namespace lockstep::cpu
