#include "core/kernels/cpu/row_tiles.h"

#include <algorithm>

#include "core/kernels/cpu/float_elements.h"
#include "glog/logging.h"

namespace lockstep::cpu {
namespace {

constexpr int64_t kTileRows = 128;
// Below, the work of a thread does not pay for its share of a weight gradient's sum.
constexpr int64_t kFewestRows = 32;
constexpr int64_t kBlockWidth = 384;

int64_t CeilDivide(int64_t n, int64_t by) { return (n + by - 1) / by; }
int64_t RoundUp(int64_t n, int64_t step) { return CeilDivide(n, step) * step; }

// The pieces are multiples of `step`.
Cut CutInto(int64_t total, int64_t count, int64_t step) {
  const int64_t size = RoundUp(CeilDivide(total, count), step);
  return {total, size, CeilDivide(total, size)};
}

}  // namespace

Cut RowTiles(int64_t rows) {
  CHECK_GT(rows, 0);
  const int64_t count = CeilDivide(rows, kTileRows);
  return CutInto(rows, RoundUp(count, ParallelParts(rows, kFewestRows)), 8);
}

Cut WidthBlocks(int64_t width) { return CutInto(width, CeilDivide(width, kBlockWidth), 16); }

int TileParts(const Cut& tiles) { return ParallelParts(tiles.count, 1); }

int64_t Scratch::Add(int64_t floats) {
  const int64_t piece = size_;
  size_ += RoundUp(floats, 16);
  return piece;
}

void Scratch::Allocate(Kernels& kernels, int parts) {
  if (size_ > 0) data_ = kernels.Empty({parts, size_}, DType::kF32, MemoryClass::kWorkspace);
}

RowProduct::RowProduct(Kernels& kernels, const MatrixView& b, int64_t k, int64_t n,
                       const float* bias)
    : k_(k),
      n_(n),
      bias_(bias),
      packed_(kernels.Empty({PackedRightSize(k, n)}, DType::kF32, MemoryClass::kWorkspace)) {
  ParallelFor(RightPanels(n), 1, [&](int64_t begin, int64_t end) {
    PackRight(b, k, n, begin, end, packed_.data<float>());
  });
}

void RowProduct::Run(int64_t rows, const float* a, int64_t a_stride, float* c, int64_t c_stride,
                     const float* addend, int64_t addend_stride) const {
  Multiply({.m = rows,
            .n = n_,
            .k = k_,
            .a = a,
            .a_stride = a_stride,
            .packed_b = packed_.data<float>(),
            .c = c,
            .c_stride = c_stride,
            .bias = bias_,
            .addend = addend,
            .addend_stride = addend_stride});
}

WeightSum::WeightSum(Kernels& kernels, int parts, Write write, const Tensor& dw)
    : write_(write), parts_(parts), in_place_(dw.dtype() == DType::kF32), dw_(dw) {
  const int partial = in_place_ ? parts - 1 : parts;
  if (partial > 0) {
    partial_ =
        kernels.Empty({partial, RoundUp(dw.elements(), 16)}, DType::kF32, MemoryClass::kWorkspace);
  }
}

float* WeightSum::Target(int part) const {
  if (in_place_ && part == 0) return dw_.data<float>();
  return partial_.data<float>() + (in_place_ ? part - 1 : part) * partial_.shape()[1];
}

Write WeightSum::WriteOf(int part, bool first) const {
  if (!first) return Write::kAccumulate;
  return in_place_ && part == 0 ? write_ : Write::kOverwrite;
}

void WeightSum::Finish() const {
  if (in_place_ && parts_ == 1) return;
  ParallelFor(dw_.elements(), 1 << 14, [&](int64_t begin, int64_t end) {
    float* sum = Target(0);
    for (int part = 1; part < parts_; ++part) {
      const float* more = Target(part);
      for (int64_t i = begin; i < end; ++i) sum[i] += more[i];
    }
    if (in_place_) return;
    if (write_ == Write::kAccumulate) {
      std::vector<float> held(end - begin);
      LoadFloats(dw_, begin, end - begin, held.data());
      for (int64_t i = begin; i < end; ++i) sum[i] += held[i - begin];
    }
    StoreFloats(sum + begin, begin, end - begin, dw_);
  });
}

void WeightGradient::Run(int part, bool first, int64_t rows, const float* dy, int64_t first_out,
                         int64_t outs, const float* x, int64_t first_in, int64_t ins) const {
  const int64_t in = sum_.in();
  float* block = sum_.Target(part) + first_out * in + first_in;
  Multiply({.m = outs,
            .n = ins,
            .k = rows,
            .a = dy,
            .packed_b = x,
            .c = block,
            .c_stride = in,
            .addend = sum_.WriteOf(part, first) == Write::kOverwrite ? nullptr : block,
            .addend_stride = in});
}

BiasGradient::BiasGradient(int parts, Write write, const Tensor& dbias)
    : width_(dbias.elements()),
      write_(write),
      dbias_(dbias),
      sums_(parts * RoundUp(width_, 16), 0.0f) {}

void BiasGradient::Run(int part, const float* dy, int64_t stride, int64_t rows, int64_t first,
                       int64_t columns) {
  float* sums = sums_.data() + part * RoundUp(width_, 16) + first;
  for (int64_t r = 0; r < rows; ++r) {
    for (int64_t i = 0; i < columns; ++i) sums[i] += dy[r * stride + i];
  }
}

void BiasGradient::Finish() const {
  FloatOutput out(dbias_, width_);
  std::vector<float> held(write_ == Write::kAccumulate ? width_ : 0);
  if (!held.empty()) LoadFloats(dbias_, 0, width_, held.data());
  float* result = out.Open(0, width_);
  const size_t part = RoundUp(width_, 16);
  for (int64_t i = 0; i < width_; ++i) {
    float sum = sums_[i];
    for (size_t p = part; p < sums_.size(); p += part) sum += sums_[p + i];
    result[i] = write_ == Write::kAccumulate ? held[i] + sum : sum;
  }
  out.Close();
}

}  // namespace lockstep::cpu
