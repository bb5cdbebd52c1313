#include "core/kernels/cpu/row_tiles.h"

#include <algorithm>

#include "glog/logging.h"

namespace lockstep::cpu {
namespace {

// Below, the work of a thread does not pay for a tile of its own.
constexpr int64_t kFewestRows = 32;

// Outputs of a block: whole blocks of registers.
constexpr int64_t kOutputStep = 8;

int64_t CeilDivide(int64_t n, int64_t by) { return (n + by - 1) / by; }
int64_t RoundUp(int64_t n, int64_t step) { return CeilDivide(n, step) * step; }

Cut CutBy(int64_t total, int64_t size) { return {total, size, CeilDivide(total, size)}; }

}  // namespace

Cut LeafTiles(int64_t rows) {
  CHECK_GT(rows, 0);
  return CutBy(rows, kLeafRows);
}

bool LeavesSuffice(const Cut& leaves) {
  const int threads = MaxThreads();
  return leaves.count % threads == 0 || leaves.count >= 4 * threads;
}

Cut InnerBlocks(int64_t width) { return CutBy(width, kInnerBlock); }

Cut OutputBlocks(int64_t out) {
  // At least as many as threads, and no larger than what is near beside a block's dy.
  const int64_t count = std::max<int64_t>(CeilDivide(out, kInnerBlock), MaxThreads());
  return CutBy(out, RoundUp(CeilDivide(out, count), kOutputStep));
}

int TileParts(const Cut& tiles) { return ParallelParts(tiles.count, 1); }

ProductTiles CutProducts(int64_t rows, int64_t columns) {
  CHECK_GT(rows, 0);
  const int threads = MaxThreads();
  const int64_t count = RoundUp(CeilDivide(rows, kLeafRows), ParallelParts(rows, kFewestRows));
  const Cut row_tiles = CutBy(rows, RoundUp(CeilDivide(rows, count), 8));
  const int64_t panels = RightPanels(columns);
  const int64_t groups = std::clamp<int64_t>(threads / row_tiles.count, 1, panels);
  return {row_tiles, CutBy(panels, CeilDivide(panels, groups))};
}

int ProductParts(const ProductTiles& tiles) { return ParallelParts(tiles.count(), 1); }

int64_t Scratch::Add(int64_t floats) {
  const int64_t piece = size_;
  size_ += RoundUp(floats, 16);
  return piece;
}

void Scratch::Allocate(Kernels& kernels, int parts) {
  if (size_ > 0) data_ = kernels.Empty({parts, size_}, DType::kF32, MemoryClass::kWorkspace);
}

RowProduct::RowProduct(CpuKernels& kernels, const MatrixView& b, int64_t k, int64_t n,
                       const float* bias)
    : instructions_(kernels.instructions()),
      k_(k),
      n_(n),
      bias_(bias),
      packed_(kernels.Empty({PackedRightSize(k, n)}, DType::kF32, MemoryClass::kWorkspace)) {
  ParallelFor(RightPanels(n), 1, [&](int64_t begin, int64_t end) {
    PackRight(b, k, n, begin, end, packed_.data<float>());
  });
}

void RowProduct::RunPanels(int64_t first_panel, int64_t end_panel, int64_t rows, const float* a,
                           int64_t a_stride, float* c, int64_t c_stride, const float* addend,
                           int64_t addend_stride) const {
  MultiplyPanels({.m = rows,
                  .n = n_,
                  .k = k_,
                  .a = a,
                  .a_stride = a_stride,
                  .packed_b = packed_.data<float>(),
                  .c = c,
                  .c_stride = c_stride,
                  .bias = bias_,
                  .addends = {&addend, addend != nullptr ? size_t{1} : size_t{0}},
                  .addend_stride = addend_stride},
                 first_panel, end_panel, instructions_);
}

}  // namespace lockstep::cpu
