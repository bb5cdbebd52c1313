// What linear layers are made of. Their rows are cut into tiles, one thread each: whatever
// surrounds a product (bias, GELU, the next product that reads the same rows) meets its tile in the
// second-level cache, and so do the tile's operands. At a transformer's sizes the arithmetic would
// otherwise wait for memory a third of the time.

#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "core/base/parallel.h"
#include "core/kernels/cpu/tile_gemm.h"
#include "core/kernels/kernels.h"

namespace lockstep::cpu {

// [0, total) in `count` pieces of `size`, the last one perhaps shorter.
struct Cut {
  int64_t total, size, count;

  int64_t Begin(int64_t i) const { return i * size; }
  int64_t Size(int64_t i) const { return std::min(size, total - i * size); }
};

// Tiles of at most 128 rows, as many for each thread: with so many a weight's panels, which come
// from memory once a tile, are paid for, and all that belongs to a tile of a wide layer fits into 2
// MiB.
Cut RowTiles(int64_t rows);

// Blocks of a hidden or output width, so that what a tile holds of it fits as well.
Cut WidthBlocks(int64_t width);

// Calls run(part, tile, first) for all tiles, in parallel, each part's in order; `first` for the
// first of a part.
int TileParts(const Cut& tiles);
template <typename Function>
void ForTiles(const Cut& tiles, Function&& run) {
  ParallelForParts(tiles.count, 1, [&](int part, int64_t begin, int64_t end) {
    for (int64_t tile = begin; tile < end; ++tile) run(part, tile, tile == begin);
  });
}

// Memory of each thread's own, in pieces that start on cache lines.
class Scratch {
 public:
  // Before Allocate: the piece's place.
  int64_t Add(int64_t floats);
  void Allocate(Kernels& kernels, int parts);
  float* At(int part, int64_t piece) const { return data_.data<float>() + part * size_ + piece; }

 private:
  int64_t size_ = 0;
  Tensor data_;
};

// c_tile[rows, n] = a_tile[rows, k] b (+ bias) (+ addend), with b[k, n] packed once, by all
// threads.
class RowProduct {
 public:
  RowProduct(Kernels& kernels, const MatrixView& b, int64_t k, int64_t n,
             const float* bias = nullptr);

  void Run(int64_t rows, const float* a, int64_t a_stride, float* c, int64_t c_stride,
           const float* addend = nullptr, int64_t addend_stride = 0) const;

 private:
  int64_t k_, n_;
  const float* bias_;
  Tensor packed_;
};

// The sum of a weight's gradient over all tiles. Each thread adds up its tiles in order, in fp32:
// the first thread in an fp32 dw itself, the others in partial results, which are then added in
// order.
class WeightSum {
 public:
  // dw [out, in] of any floating dtype; `write` says whether the sum replaces what it holds.
  WeightSum(Kernels& kernels, int parts, Write write, const Tensor& dw);

  // Where a part adds up, [out, in], and whether its next contribution replaces what is there;
  // `first` as from ForTiles.
  float* Target(int part) const;
  Write WriteOf(int part, bool first) const;
  void Finish() const;

  int64_t out() const { return dw_.shape()[0]; }
  int64_t in() const { return dw_.elements() / dw_.shape()[0]; }

 private:
  Write write_;
  int parts_;
  bool in_place_;  // the first part adds up in dw
  Tensor dw_, partial_;
};

// dw (+)= dy^T x
class WeightGradient {
 public:
  WeightGradient(Kernels& kernels, int parts, Write write, const Tensor& dw)
      : sum_(kernels, parts, write, dw) {}

  // A tile's share of the block dw[first_out .. first_out + outs, first_in .. first_in + ins], from
  // its dy and x, packed: PackLeftTransposed and PackRight.
  void Run(int part, bool first, int64_t rows, const float* dy, int64_t first_out, int64_t outs,
           const float* x, int64_t first_in, int64_t ins) const;
  void Finish() const { sum_.Finish(); }

 private:
  WeightSum sum_;
};

// dbias[width] (+)= the column sums of all tiles; dbias of any floating dtype, the order of sums as
// for the weights.
class BiasGradient {
 public:
  BiasGradient(int parts, Write write, const Tensor& dbias);

  // A tile's share of dbias[first .. first + columns].
  void Run(int part, const float* dy, int64_t stride, int64_t rows, int64_t first, int64_t columns);
  void Finish() const;

 private:
  int64_t width_;
  Write write_;
  Tensor dbias_;
  std::vector<float> sums_;
};

}  // namespace lockstep::cpu
