#pragma once

#include <cstdint>

#include "core/kernels/kernels.h"  // Transpose

namespace lockstep::cpu {

// Matrix products of one thread in fp32, for operands that fit into its second-level cache: the
// tiles into which linear layers and attention are cut. One operand is rearranged into panels that
// the registers can stream (Goto and van de Geijn, "Anatomy of High-Performance Matrix
// Multiplication", 2008; the microkernel as in BLIS, Van Zee and van de Geijn, 2015).
//
// An element's bits depend on its row of a, its column of b and k alone: not on the tile that it
// falls into, not on m or n, and not on the instruction set.

// A matrix in memory: element (i, j) at data[i * stride + j], or at data[j * stride + i] where it is
// the transpose that lies there.
struct MatrixView {
  const float* data;
  int64_t stride;
  Transpose transposed = Transpose::kNo;
};

// The right operand b[k, n] as panels of columns. Packing a weight matrix costs about as much as
// reading it; a call of a linear layer does it once for all of its tiles.
int64_t PackedRightSize(int64_t k, int64_t n);  // in floats
void PackRight(const MatrixView& b, int64_t k, int64_t n, float* packed);

// The left operand a[m, k] as panels of rows. Needed where a's columns lie in memory, as in the
// gradient of a weight; a matrix whose rows lie in memory is read as it is.
int64_t PackedLeftSize(int64_t m, int64_t k);
void PackLeft(const MatrixView& a, int64_t m, int64_t k, float* packed);

enum class InstructionSet { kAvx2, kAvx512 };
InstructionSet WidestInstructionSet();  // of this processor

// c[m, n] = a[m, k] b[k, n] (+ bias[n]) (+ addend[m, n]).
struct TileProduct {
  int64_t m, n, k;
  const float* a;  // row-major or packed
  int64_t a_stride = 0;  // between rows of a; 0: it is packed
  const float* packed_b;
  float* c;
  int64_t c_stride;
  const float* bias = nullptr;
  const float* addend = nullptr;  // may be c
  int64_t addend_stride = 0;
  InstructionSet instructions = WidestInstructionSet();
};
void Multiply(const TileProduct& product);

}  // namespace lockstep::cpu
