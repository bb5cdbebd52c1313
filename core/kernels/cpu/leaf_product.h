// Products whose sum over the inner dimension is a tree over feature leaves (kernels.h). Each leaf
// is the product that a rank with these features alone makes. A tile of rows keeps a stack of
// unfinished nodes beside its result, in cache. In fp32 a node is added while the product that
// completes it is in registers, so that several leaves cost what the blocks of one chain do; in
// bf16 each leaf is rounded first, and nodes are added tile by tile.

#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "core/base/sum_tree.h"
#include "core/kernels/cpu/bf16_tiles.h"
#include "core/kernels/cpu/row_tiles.h"
#include "core/kernels/kernels.h"

namespace lockstep::cpu {

// Says where the leaves of a tree go on the stack of a tile. Slot 0 is the tile's result.
class LeafStack {
 public:
  explicit LeafStack(int64_t leaves) : leaves_(leaves) {}

  struct Step {
    int64_t waiting = 0;                               // nodes that wait when the leaf begins
    int64_t merged = 0;                                // how many of them the leaf completes
    int64_t slot() const { return waiting - merged; }  // where the leaf's node ends up
  };
  Step operator[](int64_t leaf) const { return {NodesBefore(leaf), MergedWith(leaf, leaves_)}; }
  // Number of slots beside the result. A leaf that is not complete has one too.
  int64_t slots() const { return MostNodesBefore(leaves_); }

 private:
  int64_t leaves_;
};

// The columns of one leaf in a matrix.
template <typename T>
struct LeafOperand {
  const T* data;   // the first row
  int64_t stride;  // elements between two rows
};
// Finds the features of `leaf` in `rows` rows of `matrix`. Features in one range stay where they
// lie; those of several ranges are copied to `gathered`.
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
// Returns the number of features of the largest leaf that GatherLeaf copies.
int64_t MostGathered(const FeatureLeaves& leaves);

// Returns the leaves that have features. There is at least one.
FeatureLeaves FilledLeaves(const FeatureLeaves& leaves);

// Computes c_tile[rows, n], the sum over leaves, along the tree, of a_leaf[rows, k] b_leaf[k, n].
// Callers give the blocks of each leaf's inner dimension in order.
class LeafProduct {
 public:
  // A block of kInnerBlock steps of a leaf, or what is left of it.
  struct Block {
    int64_t leaf, begin, size;
    bool completes_leaf;
  };

  LeafProduct(CpuKernels& kernels, int64_t leaves, int64_t n)
      : kernels_(kernels), stack_(leaves), n_(n) {}
  // Adds the next leaf, of k steps. Its first block adds `bias`.
  void AddLeaf(const MatrixView& b, int64_t k, const float* bias = nullptr) {
    AddLeaf({{b, 0, k}}, bias);
  }
  // The same for a b whose rows lie in several pieces. The pieces come in the order of the rows.
  void AddLeaf(absl::Span<const RightRows> b, const float* bias = nullptr);

  const std::vector<Block>& blocks() const { return blocks_; }
  // Floats of scratch for a tile.
  int64_t ScratchSize(int64_t rows) const { return stack_.slots() * rows * n_; }

  // Computes block `block` of a tile, for the columns of some panels. `a` points to the block's
  // first step; c and `addend` have no gaps between rows. The block adds `addend`.
  void Run(size_t block, int64_t first_panel, int64_t end_panel, int64_t rows, const float* a,
           int64_t a_stride, float* c, float* scratch, const float* addend = nullptr) const;
  void Run(size_t block, int64_t rows, const float* a, int64_t a_stride, float* c, float* scratch,
           const float* addend = nullptr) const {
    Run(block, 0, RightPanels(n_), rows, a, a_stride, c, scratch, addend);
  }
  // Computes all blocks of the leaf that begins at `block`, and moves `block` behind them.
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

// Computes a tile of rows of the product over all leaves. `matrix` points to the tile's first row;
// leaf i takes its features leaves[i]. `gathered` has room for MostGathered features of each row.
void MultiplyTileByLeaves(const LeafProduct& product, const FeatureLeaves& leaves,
                          int64_t first_panel, int64_t end_panel, int64_t rows, const float* matrix,
                          int64_t width, float* c, float* scratch, float* gathered);
// Computes all rows of c[rows, n]. Threads share them as ForProducts says.
void MultiplyRowsByLeaves(CpuKernels& kernels, const LeafProduct& product,
                          const FeatureLeaves& leaves, const float* matrix, int64_t rows,
                          int64_t width, float* c, int64_t n);

// The same for bf16 operands. A leaf is one product, which is rounded.
class Bf16LeafProduct {
 public:
  Bf16LeafProduct(Kernels& kernels, int64_t leaves, int64_t n)
      : kernels_(kernels), stack_(leaves), n_(n) {}
  void AddLeaf(const Bf16View& b, int64_t k, const Tensor& bias = Tensor());

  int64_t ScratchSize(int64_t rows) const { return Bf16Floats(stack_.slots() * rows * n_); }

  // Computes leaf `leaf` of a tile, as LeafProduct::Run does a block. The leaf adds `residual`,
  // which has no gaps between rows.
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
