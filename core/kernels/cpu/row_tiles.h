// How the rows of linear layers are tiled. Whatever surrounds a product (bias, GELU, the next
// product that reads the same rows) meets its tile of rows in the second-level cache, and so do the
// tile's operands. At a transformer's sizes the arithmetic would otherwise wait for memory a third
// of the time.
//
// An element of a product is one chain over the inner dimension, in fixed blocks: how rows and
// columns are tiled changes no bit (tile_gemm.h). Sums over rows are cut into leaves of kLeafRows
// rows, whatever the number of threads (weight_sum.h).

#pragma once

#include <algorithm>
#include <cstdint>

#include "absl/types/span.h"
#include "core/base/parallel.h"
#include "core/kernels/cpu/cpu_kernels.h"
#include "core/kernels/cpu/leaf_sums.h"  // kLeafRows
#include "core/kernels/cpu/tile_gemm.h"

namespace lockstep::cpu {

// Divides [0, total) into `count` tiles of `size`; the last one may be shorter.
struct Tiling {
  int64_t total, size, count;

  int64_t Begin(int64_t i) const { return i * size; }
  int64_t Size(int64_t i) const { return std::min(size, total - i * size); }
};

// Divides `rows` rows into the leaves of a sum: kLeafRows rows each; the last one may have fewer.
// A weight's panels come from memory once a tile. So many rows pay for that, and all that belongs
// to a tile of a wide layer still fits into 1 or 2 MiB.
Tiling LeafTiles(int64_t rows);

// Returns whether the calling thread's threads can share the leaves evenly. If they cannot,
// products share their columns as well (ForProducts).
bool LeavesSuffice(const Tiling& leaves);

// Divides a hidden or output width that is summed over into blocks of kInnerBlock (tile_gemm.h).
// The sum over the blocks has the bits of one product over the whole width.
Tiling InnerBlocks(int64_t width);

// Divides the outputs of a layer among threads that share them.
Tiling OutputBlocks(int64_t out);

// Calls run(chunk, tile) for all tiles, in parallel, each chunk's in order.
int TileChunks(const Tiling& tiles);
template <typename Function>
void ForTiles(const Tiling& tiles, Function&& run) {
  ParallelForChunks(tiles.count, 1, [&](int chunk, int64_t begin, int64_t end) {
    for (int64_t tile = begin; tile < end; ++tile) run(chunk, tile);
  });
}

// Calls run(chunk, first leaf, count) for groups of leaves, in parallel, each chunk's in order,
// with the chunks of ForTiles. A group is a node of the tree over the leaves: a power of two of
// whole leaves, at most kLeafGroup, or the last leaf, which may be shorter.
template <typename Function>
void ForLeafGroups(const Tiling& leaves, Function&& run) {
  ParallelForChunks(leaves.count, 1, [&](int chunk, int64_t begin, int64_t end) {
    const int64_t whole = leaves.total / leaves.size;
    for (int64_t leaf = begin, count; leaf < end; leaf += count) {
      count = kLeafGroup;
      while (count > 1 && (leaf % count != 0 || leaf + count > std::min(end, whole))) count /= 2;
      run(chunk, leaf, count);
    }
  });
}

// How threads share a product with [rows, columns] outputs: by tiles of rows, and where there are
// fewer tiles than threads, by ranges of panels of columns too.
struct ProductTiles {
  Tiling rows, panels;

  int64_t count() const { return rows.count * panels.count; }
};
ProductTiles TileProducts(int64_t rows, int64_t columns);

// Calls run(chunk, first row, rows, first panel, end panel) for all tiles, in parallel.
int ProductChunks(const ProductTiles& tiles);
template <typename Function>
void ForProducts(const ProductTiles& tiles, Function&& run) {
  ParallelForChunks(tiles.count(), 1, [&](int chunk, int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const int64_t row = i / tiles.panels.count, panel = i % tiles.panels.count;
      const int64_t first_panel = tiles.panels.Begin(panel);
      run(chunk, tiles.rows.Begin(row), tiles.rows.Size(row), first_panel,
          first_panel + tiles.panels.Size(panel));
    }
  });
}

// Buffers that each thread has for itself. They start on cache lines.
class Scratch {
 public:
  // Reserves a buffer and returns its place. Call it before Allocate.
  int64_t Add(int64_t floats);
  void Allocate(Kernels& kernels, int chunks);
  float* At(int chunk, int64_t buffer) const {
    return data_.data<float>() + chunk * size_ + buffer;
  }

 private:
  int64_t size_ = 0;
  Tensor data_;
};

// Computes c_tile[rows, n] = a_tile[rows, k] b (+ bias) (+ addends, in order). All threads pack
// b[k, n] together, once.
class RowProduct {
 public:
  RowProduct(CpuKernels& kernels, const MatrixView& b, int64_t k, int64_t n,
             const float* bias = nullptr)
      : RowProduct(kernels, {{b, 0, k}}, k, n, bias) {}
  // The rows of b may lie in several pieces, which together hold each row once.
  RowProduct(CpuKernels& kernels, absl::Span<const RightRows> pieces, int64_t k, int64_t n,
             const float* bias = nullptr);

  // Run computes all columns, RunPanels those of panels [first_panel, end_panel). In either case a,
  // c and the addends point to their first column.
  void Run(int64_t rows, const float* a, int64_t a_stride, float* c, int64_t c_stride) const {
    RunPanels(0, RightPanels(n_), rows, a, a_stride, c, c_stride);
  }
  void RunPanels(int64_t first_panel, int64_t end_panel, int64_t rows, const float* a,
                 int64_t a_stride, float* c, int64_t c_stride,
                 absl::Span<const float* const> addends = {}, int64_t addend_stride = 0) const;

 private:
  InstructionSet instructions_;
  int64_t k_, n_;
  const float* bias_;
  Tensor packed_;
};

}  // namespace lockstep::cpu
