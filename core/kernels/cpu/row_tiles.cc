#include "core/kernels/cpu/row_tiles.h"

#include <algorithm>

#include "glog/logging.h"

namespace lockstep::cpu {
namespace {

// Below, the work of a thread does not pay for a tile of its own.
constexpr int64_t kFewestRows = 32;

// The largest part of an even share that a thread's leaves may have beyond it is 1 / kEvenShare.
constexpr int64_t kEvenShare = 16;

// Outputs of a block: whole blocks of registers.
constexpr int64_t kOutputStep = 8;

int64_t CeilDivide(int64_t n, int64_t by) { return (n + by - 1) / by; }
int64_t RoundUp(int64_t n, int64_t step) { return CeilDivide(n, step) * step; }

Tiling TileBy(int64_t total, int64_t size) { return {total, size, CeilDivide(total, size)}; }

}  // namespace

Tiling LeafTiles(int64_t rows) {
  CHECK_GT(rows, 0);
  return TileBy(rows, kLeafRows);
}

bool LeavesSuffice(const Tiling& leaves) {
  const int64_t threads = MaxThreads();
  if (threads == 1) return true;
  // Rows of the thread with the most leaves, of which the last one may be short. What it may have
  // beyond an even share costs about as much as products that share columns: these pack their rows
  // apart.
  const int64_t most = CeilDivide(leaves.count, threads) * leaves.size;
  return most * threads * kEvenShare <= leaves.total * (kEvenShare + 1);
}

Tiling InnerBlocks(int64_t width) { return TileBy(width, kInnerBlock); }

Tiling OutputBlocks(int64_t out) {
  // At least as many as threads, and no larger than what is near beside a block's dy.
  const int64_t count = std::max<int64_t>(CeilDivide(out, kInnerBlock), MaxThreads());
  return TileBy(out, RoundUp(CeilDivide(out, count), kOutputStep));
}

int TileChunks(const Tiling& tiles) { return ParallelChunks(tiles.count, 1); }

ProductTiles TileProducts(int64_t rows, int64_t columns) {
  CHECK_GT(rows, 0);
  const int threads = MaxThreads();
  const int64_t count = RoundUp(CeilDivide(rows, kLeafRows), ParallelChunks(rows, kFewestRows));
  const Tiling row_tiles = TileBy(rows, RoundUp(CeilDivide(rows, count), 8));
  const int64_t panels = RightPanels(columns);
  const int64_t groups = std::clamp<int64_t>(threads / row_tiles.count, 1, panels);
  return {row_tiles, TileBy(panels, CeilDivide(panels, groups))};
}

int ProductChunks(const ProductTiles& tiles) { return ParallelChunks(tiles.count(), 1); }

int64_t Scratch::Add(int64_t floats) {
  const int64_t buffer = size_;
  size_ += RoundUp(floats, 16);
  return buffer;
}

void Scratch::Allocate(Kernels& kernels, int chunks) {
  if (size_ > 0) data_ = kernels.Empty({chunks, size_}, DType::kF32, MemoryClass::kWorkspace);
}

RowProduct::RowProduct(CpuKernels& kernels, absl::Span<const RightRows> pieces, int64_t k,
                       int64_t n, const float* bias)
    : instructions_(kernels.instructions()),
      k_(k),
      n_(n),
      bias_(bias),
      packed_(kernels.Empty({PackedRightSize(k, n)}, DType::kF32, MemoryClass::kWorkspace)) {
  ParallelFor(RightPanels(n), 1, [&](int64_t begin, int64_t end) {
    for (const RightRows& piece : pieces) {
      PackRightRows(piece, k, n, begin, end, packed_.data<float>());
    }
  });
}

void RowProduct::RunPanels(int64_t first_panel, int64_t end_panel, int64_t rows, const float* a,
                           int64_t a_stride, float* c, int64_t c_stride,
                           absl::Span<const float* const> addends, int64_t addend_stride) const {
  MultiplyPanels({.m = rows,
                  .n = n_,
                  .k = k_,
                  .a = a,
                  .a_stride = a_stride,
                  .packed_b = packed_.data<float>(),
                  .c = c,
                  .c_stride = c_stride,
                  .bias = bias_,
                  .addends = addends,
                  .addend_stride = addend_stride},
                 first_panel, end_panel, instructions_);
}

}  // namespace lockstep::cpu
