#pragma once

#include <cstdint>

#include "absl/types/span.h"
#include "core/kernels/cpu/instruction_set.h"
#include "core/kernels/options.h"  // Transpose

namespace lockstep::cpu {

// Matrix products in fp32 on one thread, for operands that fit into its second-level cache: the
// tiles into which linear layers and attention are cut. The right operand, and the left one where
// its columns lie in memory, are first copied into panels in the order in which the registers take
// them (Goto and van de Geijn, "Anatomy of High-Performance Matrix Multiplication", 2008; the
// microkernel as in BLIS, Van Zee and van de Geijn, 2015).
//
// The bits of an element depend on its row of a, its column of b, its addends and k, and on nothing
// else: not on the tile that it falls into, on m or n, or on the processor.

// Steps of k that make one chain of multiply-adds; the sums of further blocks are added to the
// first, in order. It bounds how often a block of c is visited, and keeps what all rows of a sweep,
// so many steps of a panel of b (72 KiB), near. Changing it changes bits.
inline constexpr int64_t kInnerBlock = 384;

// A matrix in memory: element (i, j) at data[i * stride + j], or, where its transpose lies there,
// at data[j * stride + i].
struct MatrixView {
  const float* data;
  int64_t stride;
  Transpose transposed = Transpose::kNo;
};

// The right operand b[k, n] is packed into RightPanels(n) panels of columns, which take
// PackedRightSize floats together. Panels are independent: several threads may pack a large b, each
// a range of panels.
int64_t PackedRightSize(int64_t k, int64_t n);
int64_t RightPanels(int64_t n);
// A panel holds columns [first, first + width) of b[k, n]; element (p, j) lies at packed[first * k
// + p * width + j - first]. Code that writes packed operands itself needs this.
struct PanelRange {
  int64_t first, width;
};
PanelRange PanelOf(int64_t n, int64_t panel);
// Rows [first, first + count) of b[k, n], and where they lie in memory. The rows of one b may lie
// in several places.
struct RightRows {
  MatrixView rows;
  int64_t first, count;
};
// Packs these rows into panels [first_panel, end_panel). All rows of b must be packed, in any
// order, before the panels are used.
void PackRightRows(const RightRows& b, int64_t k, int64_t n, int64_t first_panel, int64_t end_panel,
                   float* packed);
// Packs a whole b, which lies in one place.
inline void PackRight(const MatrixView& b, int64_t k, int64_t n, int64_t first_panel,
                      int64_t end_panel, float* packed) {
  PackRightRows({b, 0, k}, k, n, first_panel, end_panel, packed);
}
inline void PackRight(const MatrixView& b, int64_t k, int64_t n, float* packed) {
  PackRight(b, k, n, 0, RightPanels(n), packed);
}

// Packs the left operand a[m, k] into panels of rows, from its transpose: a(i, p) lies at
// from[p * stride + i].
int64_t PackedLeftSize(int64_t m, int64_t k);
void PackLeftTransposed(const float* from, int64_t stride, int64_t m, int64_t k, float* packed);

// The most products that Multiply adds up before they leave the first-level cache, which saves the
// memory traffic of all sums but the last.
inline constexpr int64_t kLeafGroup = 4;

// c[m, n] = a[m, k] b[k, n] (+ bias[n]) (+ each addend[m, n], in order).
struct TileProduct {
  int64_t m, n, k;
  // Number of products that are added up as the leaves of a tree (core/base/sum_tree.h), each made
  // as if alone: a power of two, at most kLeafGroup. With more than one, a is packed, k is at most
  // kInnerBlock, and the packed operands of the products follow each other.
  int leaves = 1;
  const float* a;
  int64_t a_stride = 0;  // between the rows of a; 0: a is packed
  const float* packed_b;
  // Steps that b was packed with, if they are more than k: the product takes the first k.
  int64_t packed_k = 0;
  float* c;
  int64_t c_stride;
  const float* bias = nullptr;
  absl::Span<const float* const> addends = {};  // one may be c: the product is added to it
  int64_t addend_stride = 0;                    // between the rows of each
};
void Multiply(const TileProduct& product, InstructionSet instructions);
// Computes only the columns of panels [first_panel, end_panel).
void MultiplyPanels(const TileProduct& product, int64_t first_panel, int64_t end_panel,
                    InstructionSet instructions);

}  // namespace lockstep::cpu
