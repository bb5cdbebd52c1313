#pragma once

#include <cstdint>

namespace lockstep::cpu {

// The block of c that a microkernel keeps in registers, in the layout that both instruction sets
// share: AVX-512 holds 8 x 48 in 24 registers of 16, AVX2 takes it as four blocks of 4 x 24, 12
// registers of 8 each. Either leaves just enough registers for a row of b and one element of a, and
// per multiply-add loads less than half of what the two load ports can bring.
inline constexpr int kBlockRows = 8;
inline constexpr int kBlockColumns = 48;
// Blocks may be narrower by whole multiples of this: one AVX-512 register, or twice one of AVX2.
inline constexpr int kColumnStep = 16;

// c[rows, columns] = a b + bias + addend. a(i, p) = a[i * a_row + p * a_step]; b[k, width] is packed,
// width = columns rounded up to kColumnStep, zeros beyond. Rows of c and addend are c_row and
// addend_row apart; bias (one row) and addend may be null; addend may be c. Each element is one chain
// of fused multiply-adds over p = 0, 1, ... from zero, so its bits depend neither on its place in the
// block nor on the instruction set.
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
  const float* next_c;
  const float* next_b;
  int64_t next_b_lines;
  int rows, columns;  // 1 .. kBlockRows, 1 .. kBlockColumns
};

void RunBlockAvx2(const TileBlock& block);
void RunBlockAvx512(const TileBlock& block);

}  // namespace lockstep::cpu
