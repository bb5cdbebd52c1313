#include "core/kernels/cpu/leaf_product.h"

#include <algorithm>

#include "core/base/half.h"
#include "core/kernels/cpu/tile_gemm.h"
#include "core/kernels/feature_leaves.h"
#include "glog/logging.h"

namespace lockstep::cpu {
namespace {

// to += from, columns [first, end) of `rows` rows without gaps, each sum rounded.
void AddColumns(const Bf16* from, int64_t n, int64_t rows, int64_t first, int64_t end, Bf16* to) {
  for (int64_t r = 0; r < rows; ++r) {
    const Bf16* __restrict right = from + r * n;
    Bf16* __restrict left = to + r * n;
    for (int64_t i = first; i < end; ++i) {
      left[i] = FloatToBFloat16(BFloat16ToFloat(left[i]) + BFloat16ToFloat(right[i]));
    }
  }
}

}  // namespace

int64_t MostGathered(const FeatureLeaves& leaves) {
  int64_t most = 0;
  for (const std::vector<Range>& leaf : leaves) {
    if (leaf.size() > 1) most = std::max(most, FeaturesOf(leaf));
  }
  return most;
}

FeatureLeaves FilledLeaves(const FeatureLeaves& leaves) {
  FeatureLeaves filled = leaves;
  std::erase_if(filled, [](const std::vector<Range>& leaf) { return FeaturesOf(leaf) == 0; });
  return filled;
}

void LeafProduct::AddLeaf(absl::Span<const RightRows> b, const float* bias) {
  const Tiling blocks = InnerBlocks(b.back().first + b.back().count);
  for (int64_t i = 0; i < blocks.count; ++i) {
    const int64_t begin = blocks.Begin(i), end = begin + blocks.Size(i);
    blocks_.push_back({.leaf = leaves_added_,
                       .begin = begin,
                       .size = end - begin,
                       .completes_leaf = i + 1 == blocks.count});
    std::vector<RightRows> pieces;  // what the block has of b
    for (const auto& [rows, first, count] : b) {
      const int64_t from = std::max(begin, first), to = std::min(end, first + count);
      if (from >= to) continue;
      const int64_t step = rows.transposed == Transpose::kYes ? 1 : rows.stride;
      pieces.push_back({{rows.data + (from - first) * step, rows.stride, rows.transposed},
                        from - begin,
                        to - from});
    }
    products_.emplace_back(kernels_, pieces, end - begin, n_, i == 0 ? bias : nullptr);
  }
  ++leaves_added_;
}

void LeafProduct::Run(size_t block, int64_t first_panel, int64_t end_panel, int64_t rows,
                      const float* a, int64_t a_stride, float* c, float* scratch,
                      const float* addend) const {
  const Block& at = blocks_[block];
  const LeafStack::Step step = stack_[at.leaf];
  const auto slot = [&](int64_t i) { return i == 0 ? c : scratch + (i - 1) * rows * n_; };
  constexpr int kMost = 64;  // nodes of a tree wait, at most as many as a number has bits
  const float* addends[kMost + 2];
  size_t count = 0;
  if (at.begin > 0) addends[count++] = slot(step.waiting);  // the leaf so far
  if (addend != nullptr) addends[count++] = addend;
  for (int64_t i = 1; at.completes_leaf && i <= step.merged; ++i) {
    addends[count++] = slot(step.waiting - i);
  }
  float* to = slot(at.completes_leaf ? step.slot() : step.waiting);
  products_[block].RunPanels(first_panel, end_panel, rows, a, a_stride, to, n_, {addends, count},
                             n_);
}

void LeafProduct::RunLeaf(size_t& block, int64_t first_panel, int64_t end_panel, int64_t rows,
                          const float* a, int64_t a_stride, float* c, float* scratch) const {
  for (bool completes = false; !completes; ++block) {
    completes = blocks_[block].completes_leaf;
    Run(block, first_panel, end_panel, rows, a + blocks_[block].begin, a_stride, c, scratch);
  }
}

void MultiplyTileByLeaves(const LeafProduct& product, const FeatureLeaves& leaves,
                          int64_t first_panel, int64_t end_panel, int64_t rows, const float* matrix,
                          int64_t width, float* c, float* scratch, float* gathered) {
  size_t block = 0;
  for (const std::vector<Range>& leaf : leaves) {
    const auto [a, stride] = GatherLeaf(matrix, width, rows, leaf, gathered);
    product.RunLeaf(block, first_panel, end_panel, rows, a, stride, c, scratch);
  }
}

void MultiplyRowsByLeaves(CpuKernels& kernels, const LeafProduct& product,
                          const FeatureLeaves& leaves, const float* matrix, int64_t rows,
                          int64_t width, float* c, int64_t n) {
  const ProductTiles tiles = TileProducts(rows, n);
  Scratch scratch;
  const int64_t nodes = scratch.Add(product.ScratchSize(tiles.rows.size));
  const int64_t gathered = scratch.Add(tiles.rows.size * MostGathered(leaves));
  scratch.Allocate(kernels, ProductChunks(tiles));
  ForProducts(tiles, [&](int chunk, int64_t first, int64_t count, int64_t panel, int64_t end) {
    MultiplyTileByLeaves(product, leaves, panel, end, count, matrix + first * width, width,
                         c + first * n, scratch.At(chunk, nodes), scratch.At(chunk, gathered));
  });
}

void Bf16LeafProduct::AddLeaf(const Bf16View& b, int64_t k, const Tensor& bias) {
  products_.emplace_back(kernels_, b, k, n_, bias);
}

void Bf16LeafProduct::Run(int64_t leaf, int64_t first_panel, int64_t end_panel, int64_t rows,
                          const Bf16* a, int64_t a_stride, Bf16* c, Bf16* scratch,
                          const Bf16* residual) const {
  const LeafStack::Step step = stack_[leaf];
  const auto slot = [&](int64_t i) { return i == 0 ? c : scratch + (i - 1) * rows * n_; };
  Bf16Product product;
  product.m = rows;
  product.a = a;
  product.a_stride = a_stride;
  product.c_bf16 = slot(step.waiting);
  product.c_stride = n_;
  product.residual = residual;
  product.residual_stride = n_;
  products_[static_cast<size_t>(leaf)].RunPanels(first_panel, end_panel, product);
  const PanelRange last = PanelOf(n_, end_panel - 1);
  const int64_t first = PanelOf(n_, first_panel).first, end = std::min(n_, last.first + last.width);
  for (int64_t i = step.waiting; i > step.slot(); --i) {
    AddColumns(slot(i), n_, rows, first, end, slot(i - 1));
  }
}

void MultiplyTileByLeaves(const Bf16LeafProduct& product, const FeatureLeaves& leaves,
                          int64_t first_panel, int64_t end_panel, int64_t rows, const Bf16* matrix,
                          int64_t width, Bf16* c, Bf16* scratch, Bf16* gathered) {
  for (size_t i = 0; i < leaves.size(); ++i) {
    const auto [a, stride] = GatherLeaf(matrix, width, rows, leaves[i], gathered);
    product.Run(static_cast<int64_t>(i), first_panel, end_panel, rows, a, stride, c, scratch);
  }
}

void MultiplyRowsByLeaves(Kernels& kernels, const Bf16LeafProduct& product,
                          const FeatureLeaves& leaves, const Bf16* matrix, int64_t rows,
                          int64_t width, Bf16* c, int64_t n) {
  const ProductTiles tiles = TileProducts(rows, n);
  Scratch scratch;
  const int64_t nodes = scratch.Add(product.ScratchSize(tiles.rows.size));
  const int64_t gathered = scratch.Add(Bf16Floats(tiles.rows.size * MostGathered(leaves)));
  scratch.Allocate(kernels, ProductChunks(tiles));
  ForProducts(tiles, [&](int chunk, int64_t first, int64_t count, int64_t panel, int64_t end) {
    const auto at = [&](int64_t buffer) {
      return reinterpret_cast<Bf16*>(scratch.At(chunk, buffer));
    };
    MultiplyTileByLeaves(product, leaves, panel, end, count, matrix + first * width, width,
                         c + first * n, at(nodes), at(gathered));
  });
}

}  // namespace lockstep::cpu
