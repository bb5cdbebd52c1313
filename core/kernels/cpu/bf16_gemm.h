#pragma once

#include <cstdint>

#include "absl/types/span.h"
#include "core/kernels/cpu/tile_gemm.h"  // kLeafGroup
#include "core/kernels/options.h"        // Transpose

namespace lockstep::cpu {

// Matrix products of bf16 operands on one thread, added up in fp32, on processors with AVX512-BF16:
// what tile_gemm.h is for fp32, with the same panels, in which two neighbouring steps of k lie
// together.
//
// An element of a product is one chain of fused multiply-adds over k, in the order p = 1, 0, 3, 2,
// ... in which the instruction takes pairs, and in which subnormal numbers count as zero. So its
// bits depend on its row of a, its column of b, what is added and k, and on nothing else: not on
// the tile that it falls into, on m or n, or on whether a chain is continued in a further call.

// A bf16 element: the upper half of a float (core/base/half.h).
using Bf16 = uint16_t;

// Whether this processor has the instructions. Nothing below may be called where it has not.
bool HasBf16Instructions();

// A matrix in memory: element (i, j) at data[i * stride + j], or, where its transpose lies there,
// at data[j * stride + i].
struct Bf16View {
  const Bf16* data;
  int64_t stride;
  Transpose transposed = Transpose::kNo;
};

// The right operand b[k, n] in panels of columns; `packed` takes PackedBf16RightSize elements.
// Panels are independent: a large b is packed by several threads, each a range of the
// RightPanels(n) of tile_gemm.h.
int64_t PackedBf16RightSize(int64_t k, int64_t n);
void PackBf16Right(const Bf16View& b, int64_t k, int64_t n, int64_t first_panel, int64_t end_panel,
                   Bf16* packed);
void PackBf16Right(const Bf16View& b, int64_t k, int64_t n, Bf16* packed);

// The left operand a[m, k] in panels of rows, from its transpose: a(i, p) at from[p * stride + i].
int64_t PackedBf16LeftSize(int64_t m, int64_t k);
void PackBf16LeftTransposed(const Bf16* from, int64_t stride, int64_t m, int64_t k, Bf16* packed);

// c[m, n] = a[m, k] b[k, n] (+ each addend[m, n], in order) (+ bias[n]) (+ residual[m, n]). Several
// calls may divide k: each starts its chains from the result of the call before (`start`). They
// give the bits of one product over all of k if each call but the last has an even k.
struct Bf16Product {
  int64_t m = 0, n = 0, k = 0;
  // Number of products that are added up as the leaves of a tree (core/base/sum_tree.h): a power of
  // two, at most kLeafGroup. Each product starts from zero. With more than one, a is packed,
  // `start` is null, and the packed operands of the leaves follow each other.
  int leaves = 1;
  const Bf16* a = nullptr;
  int64_t a_stride = 0;  // between the rows of a; 0: a is packed
  const Bf16* packed_b = nullptr;
  // Where the result goes, either of the two; bf16 is rounded once, to nearest even.
  float* c = nullptr;
  Bf16* c_bf16 = nullptr;
  int64_t c_stride = 0;
  const float* start = nullptr;  // what the chains start from instead of zero; may be c
  int64_t start_stride = 0;
  absl::Span<const float* const> addends = {};  // one may be c
  int64_t addend_stride = 0;                    // between the rows of each
  const float* bias = nullptr;
  const Bf16* residual = nullptr;  // may be c_bf16
  int64_t residual_stride = 0;
};
void MultiplyBf16(const Bf16Product& product);
// The same for the columns of panels [first_panel, end_panel) alone.
void MultiplyBf16Panels(const Bf16Product& product, int64_t first_panel, int64_t end_panel);

}  // namespace lockstep::cpu
