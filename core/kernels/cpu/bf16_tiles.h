// What linear layers in bf16 are made of: the counterparts of RowProduct (row_tiles.h) and
// WeightGradient (weight_sum.h) for bf16 operands.

#pragma once

#include <cstdint>
#include <vector>

#include "core/base/parallel.h"
#include "core/kernels/cpu/bf16_gemm.h"
#include "core/kernels/cpu/leaf_sums.h"
#include "core/kernels/cpu/row_tiles.h"
#include "core/kernels/cpu/weight_sum.h"
#include "core/kernels/kernels.h"

namespace lockstep::cpu {

// The elements of a bf16 tensor; null if it is undefined.
Bf16* Bf16Data(const Tensor& t);

// Floats of a Scratch that hold so many bf16 elements.
inline int64_t Bf16Floats(int64_t elements) { return (elements + 1) / 2; }

// c_tile[rows, n] = a_tile[rows, k] b (+ what is added), with b[k, n] packed once, by all threads.
class Bf16RowProduct {
 public:
  // `bias`: [n] in bf16, or undefined. It is read when this is constructed.
  Bf16RowProduct(Kernels& kernels, const Bf16View& b, int64_t k, int64_t n,
                 const Tensor& bias = Tensor());

  // Computes `product`, which lacks b, n, k and bias, for all columns, or for those of panels
  // [first_panel, end_panel); what it points to is given from its first column on in either case.
  void Run(const Bf16Product& product) const { RunPanels(0, RightPanels(n_), product); }
  void RunPanels(int64_t first_panel, int64_t end_panel, Bf16Product product) const;

 private:
  int64_t k_, n_;
  std::vector<float> bias_;  // empty: none
  Tensor packed_;
};

// dw (+)= dy^T x
class Bf16WeightGradient {
 public:
  // dw [out, in] of any floating dtype; `chunks` as for WeightSum.
  Bf16WeightGradient(Kernels& kernels, const Tiling& leaves, int chunks, Write write,
                     const Tensor& dw)
      : sum_(kernels, leaves, chunks, write, dw) {}

  // The product of a group of leaves with `rows` rows each, for the block dw[first_out .. first_out
  // + outs, first_in .. first_in + ins], from their dy and x, packed, one leaf after the other:
  // PackBf16LeftTransposed and PackBf16Right.
  void Run(int chunk, int64_t first_leaf, int64_t count, int64_t rows, const Bf16* dy,
           int64_t first_out, int64_t outs, const Bf16* x, int64_t first_in, int64_t ins) const;
  void Finish() const { sum_.Finish(); }

 private:
  WeightSum sum_;
};

// sums[i] += x[r * stride + i] for `rows` rows r in order and i < columns.
void AddBf16Rows(const Bf16* x, int64_t stride, int64_t rows, int64_t columns, float* sums);

}  // namespace lockstep::cpu
