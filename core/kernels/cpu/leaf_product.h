// Products whose sum over the inner dimension is a tree over feature leaves (kernels.h). Each leaf
// is the product that a rank with these features alone makes. A tile of rows keeps a stack of
// unfinished nodes beside its result, in cache. In fp32 a node is added while the product that
// completes it is in registers, so that several leaves cost what the blocks of one chain do; in
// bf16 each leaf is rounded first, and nodes are added tile by tile.

#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "core/kernels/cpu/bf16_tiles.h"
#include "core/kernels/cpu/row_tiles.h"
#include "core/kernels/kernels.h"

namespace lockstep::cpu {

// Where the leaves of a tree go on the stack of a tile, whose slot 0 is the tile's result.
class LeafStack {
 public:
  explicit LeafStack(int64_t leaves);

  // Nodes that wait when a leaf begins, and how many of them it completes.
  struct Step {
    int waiting = 0, merged = 0;
    int slot() const { return waiting - merged; }  // where its node ends up
  };
  const Step& operator[](int64_t leaf) const { return steps_[static_cast<size_t>(leaf)]; }
  // Slots beside the result, with one for a leaf that is not complete.
  int64_t slots() const { return slots_; }

 private:
  std::vector<Step> steps_;
  int64_t slots_ = 0;
};

// The features of a leaf in `rows` rows of a matrix with so many columns between them: where they
// lie, or, if in several ranges, gathered.
template <typename T>
struct LeafOperand {
  const T* data;
  int64_t stride;
};
template <typename T>
LeafOperand<T> GatherLeaf(const T* matrix, int64_t stride, int64_t rows,
                          const std::vector<Range>& leaf, T* gathered) {
  if (leaf.size() == 1) return {matrix + leaf[0].first, stride};
  int64_t features = 0;
  for (const Range& range : leaf) features += range.count;
  for (int64_t r = 0; r < rows; ++r) {
    T* to = gathered + r * features;
    for (const Range& range : leaf) {
      to = std::copy_n(matrix + r * stride + range.first, range.count, to);
    }
  }
  return {gathered, features};
}
// Features of the largest leaf that GatherLeaf copies.
int64_t MostGathered(const FeatureLeaves& leaves);

// Leaves that have features; there is one at least.
FeatureLeaves FilledLeaves(const FeatureLeaves& leaves);

// c_tile[rows, n] = the tree over leaves of a_leaf[rows, k] b_leaf[k, n], by blocks of each leaf's
// inner dimension, which come in order.
class LeafProduct {
 public:
  // A block of kInnerBlock steps of a leaf, or what is left of it.
  struct Block {
    int64_t leaf, begin, size;
    bool completes_leaf;
  };

  LeafProduct(CpuKernels& kernels, int64_t leaves, int64_t n)
      : kernels_(kernels), stack_(leaves), n_(n) {}
  // Adds the next leaf, of k steps. `bias` is added to its first block.
  void AddLeaf(const MatrixView& b, int64_t k, const float* bias = nullptr) {
    AddLeaf({{b, 0, k}}, bias);
  }
  // The same for a b whose rows lie in several places, in order.
  void AddLeaf(absl::Span<const RightRows> b, const float* bias = nullptr);

  const std::vector<Block>& blocks() const { return blocks_; }
  // Floats of scratch for a tile.
  int64_t ScratchSize(int64_t rows) const { return stack_.slots() * rows * n_; }

  // Block `block` of a tile, for the columns of some panels: `a` from the block's first step on, c
  // and the rows of `addend` without gaps. `addend` is added to this block.
  void Run(size_t block, int64_t first_panel, int64_t end_panel, int64_t rows, const float* a,
           int64_t a_stride, float* c, float* scratch, const float* addend = nullptr) const;
  void Run(size_t block, int64_t rows, const float* a, int64_t a_stride, float* c, float* scratch,
           const float* addend = nullptr) const {
    Run(block, 0, RightPanels(n_), rows, a, a_stride, c, scratch, addend);
  }
  // All blocks of the next leaf after `block`, which it moves behind them.
  void RunLeaf(size_t& block, int64_t first_panel, int64_t end_panel, int64_t rows, const float* a,
               int64_t a_stride, float* c, float* scratch) const;

 private:
  CpuKernels& kernels_;
  LeafStack stack_;
  int64_t n_;
  std::vector<Block> blocks_;
  std::vector<RowProduct> products_;  // of each block
  int64_t leaves_added_ = 0;
};

// A tile of rows of the product over all leaves: `matrix` is the tile's, of which leaf i has the
// features leaves[i]. `gathered` has room for MostGathered features of each row.
void MultiplyTileByLeaves(const LeafProduct& product, const FeatureLeaves& leaves,
                          int64_t first_panel, int64_t end_panel, int64_t rows, const float* matrix,
                          int64_t width, float* c, float* scratch, float* gathered);
// All rows, c [rows, n], shared by threads as ForProducts does.
void MultiplyRowsByLeaves(CpuKernels& kernels, const LeafProduct& product,
                          const FeatureLeaves& leaves, const float* matrix, int64_t rows,
                          int64_t width, float* c, int64_t n);

// The same for bf16 operands; a leaf is one product, rounded.
class Bf16LeafProduct {
 public:
  Bf16LeafProduct(Kernels& kernels, int64_t leaves, int64_t n)
      : kernels_(kernels), stack_(leaves), n_(n) {}
  void AddLeaf(const Bf16View& b, int64_t k, const Tensor& bias = Tensor());

  int64_t ScratchSize(int64_t rows) const { return Bf16Floats(stack_.slots() * rows * n_); }

  // Leaf `leaf` of a tile, as LeafProduct::Run. `residual` is added to it, rows without gaps.
  void Run(int64_t leaf, int64_t first_panel, int64_t end_panel, int64_t rows, const Bf16* a,
           int64_t a_stride, Bf16* c, Bf16* scratch, const Bf16* residual = nullptr) const;
  void Run(int64_t leaf, int64_t rows, const Bf16* a, int64_t a_stride, Bf16* c, Bf16* scratch,
           const Bf16* residual = nullptr) const {
    Run(leaf, 0, RightPanels(n_), rows, a, a_stride, c, scratch, residual);
  }

 private:
  Kernels& kernels_;
  LeafStack stack_;
  int64_t n_;
  std::vector<Bf16RowProduct> products_;  // of each leaf
};

void MultiplyTileByLeaves(const Bf16LeafProduct& product, const FeatureLeaves& leaves,
                          int64_t first_panel, int64_t end_panel, int64_t rows, const Bf16* matrix,
                          int64_t width, Bf16* c, Bf16* scratch, Bf16* gathered);
void MultiplyRowsByLeaves(Kernels& kernels, const Bf16LeafProduct& product,
                          const FeatureLeaves& leaves, const Bf16* matrix, int64_t rows,
                          int64_t width, Bf16* c, int64_t n);

}  // namespace lockstep::cpu
