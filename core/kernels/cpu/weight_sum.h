#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "absl/types/span.h"
#include "core/base/sum_tree.h"
#include "core/kernels/cpu/cpu_kernels.h"
#include "core/kernels/cpu/row_tiles.h"
#include "core/kernels/kernels.h"

namespace lockstep::cpu {

// A weight's gradient: the sum over all row leaves of a call, by the tree of docs/numerics.md,
// which is complete before it is added to what the gradient holds. Each chunk of the leaves, a
// thread's, keeps a stack of partial sums. What a leaf completes is added while the product of the
// leaf is in registers, so that the tree moves as many bytes as a running sum: one read and one
// write a leaf.
//
//   WeightSum sum(kernels, leaves, chunks, write, dw);
//   ForLeafGroups(leaves, [&](int chunk, int64_t first_leaf, int64_t count) {
//     const WeightSum::Place place = sum.PlaceOf(chunk, first_leaf, count, offset);
//     *place.to = sum of the leaves' products + *place.addends[0] + *place.addends[1] + ...;
//   });
//   sum.Finish();
class WeightSum {
 public:
  // dw [out, in] of any floating dtype; `write` says whether the sum replaces what it holds.
  // `chunks` is how many chunks ForTiles makes of `leaves`; or 1, where each thread computes the
  // same rows of dw in all leaves.
  WeightSum(Kernels& kernels, const Tiling& leaves, int chunks, Write write, const Tensor& dw);

  // Where the sum of a group of leaves goes, and what is added to it, in order: matrices [out, in]
  // in fp32 without gaps, from one element on.
  static constexpr int kMostAddends = 48;  // leaves have 64-bit numbers; no batch has 2^46
  struct Place {
    float* to;
    std::array<const float*, kMostAddends> pointers;
    int count;

    absl::Span<const float* const> addends() const {
      return {pointers.data(), static_cast<size_t>(count)};
    }
  };
  // The leaves [first_leaf, first_leaf + count) are a node of the tree, which the caller adds up.
  // Pointers are to element `offset` of the matrices.
  Place PlaceOf(int chunk, int64_t first_leaf, int64_t count, int64_t offset) const;

  // After the last leaf: adds the sums of the chunks, and stores them in dw.
  void Finish() const;

  int64_t out() const { return dw_.shape()[0]; }
  int64_t in() const { return dw_.elements() / dw_.shape()[0]; }

 private:
  // Where a leaf goes on the stack of its chunk, and how many partial sums it completes: those from
  // `slot` on.
  struct Step {
    int slot, merged;
  };

  // The partial sum number `index` among those of all chunks.
  float* Partial(int64_t index) const;
  // The partial sum at a place of a chunk's stack.
  float* Slot(int chunk, int slot) const { return Partial(first_slot_[chunk] + slot); }
  // Whether all leaves have one stack, whose last product is dw itself.
  bool LastLeafCompletes() const { return chunks_ == 1 && is_f32_; }

  Write write_;
  int chunks_;
  bool is_f32_;
  Tensor dw_, partial_;
  int64_t leaves_;
  std::vector<Step> steps_;          // of each leaf
  std::vector<int64_t> first_slot_;  // of each chunk, among the slots of all
  std::vector<TreeNode> nodes_;      // what is left of all chunks' stacks, in order
  std::vector<int64_t> slots_;       // of each node, among the slots of all
  bool first_slot_is_dw_;
};

// dw (+)= dy^T x
class WeightGradient {
 public:
  WeightGradient(CpuKernels& kernels, const Tiling& leaves, int chunks, Write write,
                 const Tensor& dw)
      : instructions_(kernels.instructions()), sum_(kernels, leaves, chunks, write, dw) {}

  // The product of a group of leaves (ForLeafGroups) with `rows` rows each, for the block
  // dw[first_out .. first_out + outs, first_in .. first_in + ins], from their dy and x, packed, one
  // leaf after the other: PackLeftTransposed and PackRight.
  void Run(int chunk, int64_t first_leaf, int64_t count, int64_t rows, const float* dy,
           int64_t first_out, int64_t outs, const float* x, int64_t first_in, int64_t ins) const;
  void Finish() const { sum_.Finish(); }

 private:
  InstructionSet instructions_;
  WeightSum sum_;
};

}  // namespace lockstep::cpu
