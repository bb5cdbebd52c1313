// Sums over the rows of a batch whose bits do not depend on threads: gradients of biases and of
// normalisation layers (docs/numerics.md, "The tree").
//
// The rows are cut into leaves of kLeafRows rows. A leaf adds its rows in order in fp32; the sum is
// the binary tree of core/base/sum_tree.h over the leaves. Each thread takes a range of leaves.

#pragma once

#include <algorithm>
#include <cstdint>
#include <initializer_list>
#include <vector>

#include "core/base/parallel.h"
#include "core/base/sum_tree.h"
#include "core/kernels/cpu/float_elements.h"  // FloatBuffer
#include "core/kernels/options.h"             // kRowLeaf
#include "core/tensor/tensor.h"

namespace lockstep::cpu {

// Rows of a leaf of every sum over rows. Long enough that a product over the rows of one leaf, for
// a weight's gradient, runs at full speed; short enough that a small batch occupies many threads.
inline constexpr int64_t kLeafRows = kRowLeaf;

inline int64_t RowLeaves(int64_t rows) { return (rows + kLeafRows - 1) / kLeafRows; }

// Number of chunks of ForRowLeaves(rows, grain, ...).
inline int RowLeafChunks(int64_t rows, int64_t grain) {
  return ParallelChunks(RowLeaves(rows), std::max<int64_t>(1, grain / kLeafRows));
}

// Calls run(chunk, leaf, first_row, count) for every leaf, in parallel. The leaves of a chunk are
// consecutive and come in order; the chunks follow each other in the order of rows. `grain` is the
// number of rows below which a thread does not pay.
template <typename Function>
void ForRowLeaves(int64_t rows, int64_t grain, Function&& run) {
  ParallelForChunks(RowLeaves(rows), std::max<int64_t>(1, grain / kLeafRows),
                    [&](int chunk, int64_t begin, int64_t end) {
                      for (int64_t leaf = begin; leaf < end; ++leaf) {
                        const int64_t first = leaf * kLeafRows;
                        run(chunk, leaf, first, std::min(kLeafRows, rows - first));
                      }
                    });
}

// Adds up `width` columns over all leaves. A caller that wants several sums at once, or blocks of
// columns, cuts the width as it likes.
//
//   LeafSums sums(RowLeaves(rows), RowLeafChunks(rows, grain), width);
//   ForRowLeaves(rows, grain, [&](int chunk, int64_t leaf, int64_t first, int64_t count) {
//     float* leaf_sums = sums.Open(chunk, leaf);
//     for (int64_t r = first; r < first + count; ++r) {
//       for (int64_t i = 0; i < width; ++i) leaf_sums[i] += x[r * width + i];
//     }
//     sums.Close(chunk);
//   });
//   sums.WriteTo({dbias}, write);
//
// Open and Close may be called for different chunks at the same time; all other calls come from one
// thread.
class LeafSums {
 public:
  // `leaves` in all, divided among `chunks` as ParallelForChunks divides them.
  LeafSums(int64_t leaves, int chunks, int64_t width);

  // Starts leaf number `leaf`. Returns its sums [width], zeroed, to which the caller adds the rows
  // of the leaf in order; they are valid until Close. A chunk's leaves are consecutive.
  float* Open(int chunk, int64_t leaf);
  // Adds the opened leaf to the chunk's nodes of the tree.
  void Close(int chunk);

  // After all leaves are closed: the sums over all leaves, [width], valid as long as this object.
  // Zeros if no leaf was opened (core/base/parallel.h, LoopsSkipped).
  const float* Finish();
  // In place of Finish: writes the sums, or adds them, to tensors that have equal shares of them,
  // in order; undefined ones are left out. Nothing while loops are skipped.
  void WriteTo(std::initializer_list<Tensor> shares, Write write);

 private:
  struct Chunk {
    std::vector<TreeStack> stack;     // empty before the first leaf
    std::vector<FloatBuffer> values;  // of the stack's nodes and of the open leaf, [width_] each
    size_t nodes = 0;
  };

  int64_t leaves_, width_;
  std::vector<float> zeros_;
  std::vector<Chunk> chunks_;
};

// sums[i] += x[r * stride + i] for `rows` rows r in order and i < columns.
void AddRows(const float* x, int64_t stride, int64_t rows, int64_t columns, float* sums);

}  // namespace lockstep::cpu
