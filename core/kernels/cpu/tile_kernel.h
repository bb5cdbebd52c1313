#pragma once

#include <cstdint>

namespace lockstep::cpu {

// The block of c that a microkernel keeps in registers, and in which packed operands are laid out,
// whatever the instruction set: AVX-512 holds 8 x 48 in 24 of its 32 registers; AVX2 makes it of four
// blocks of 4 x 24, 12 of its 16 registers each. Either has room for a row of b and one element of a
// beside it, and for each multiply-add loads half a register: the load ports keep up.
inline constexpr int kBlockRows = 8;
inline constexpr int kBlockColumns = 48;
// Panels of b may be narrower than that by multiples of this: a register of AVX-512, two of AVX2.
inline constexpr int kColumnStep = 16;

// c[rows, columns] = a b + bias + addend. Element (i, p) of a lies at a[i * a_row + p], or, if a_row
// is 0, in a packed panel at a[p * kBlockRows + i]. b[k, width] is packed, width = columns rounded up
// to kColumnStep, zeros beyond. Rows of c and addend are c_row and addend_row apart; bias (one row)
// and addend may be null; addend may be c.
struct TileBlock {
  int64_t k;
  const float* a;
  int64_t a_row;
  const float* b;
  float* c;
  int64_t c_row;
  const float* addend;
  int64_t addend_row;
  const float* bias;
  int rows, columns;    // 1 .. kBlockRows, 1 .. kBlockColumns
  // What is fetched meanwhile: the block that will be written next, into the first-level cache, and
  // eight pieces of so many cache lines of what will be read as b after this, into the second.
  const float* next_c;
  const float* next_b;
  int next_b_lines;
};

// Each element is one chain of fused multiply-adds over p = 0, 1, ... from zero, to which bias and
// addend are added: both instruction sets give the same bits.
void RunBlockAvx2(const TileBlock& block);
void RunBlockAvx512(const TileBlock& block);

}  // namespace lockstep::cpu
