#include "core/kernels/cpu/bf16_tiles.h"

#include "core/base/half.h"
#include "core/base/parallel.h"
#include "core/kernels/cpu/float_elements.h"
#include "glog/logging.h"

namespace lockstep::cpu {

Bf16* Bf16Data(const Tensor& t) {
  if (!t.defined()) return nullptr;
  CHECK(t.dtype() == DType::kBF16) << Name(t.dtype());
  return reinterpret_cast<Bf16*>(t.raw());
}

Bf16RowProduct::Bf16RowProduct(Kernels& kernels, const Bf16View& b, int64_t k, int64_t n,
                               const Tensor& bias)
    : k_(k),
      n_(n),
      bias_(bias.defined() ? n : 0),
      packed_(kernels.Empty({PackedBf16RightSize(k, n)}, DType::kBF16, MemoryClass::kWorkspace)) {
  ParallelFor(RightPanels(n), 1, [&](int64_t begin, int64_t end) {
    PackBf16Right(b, k, n, begin, end, Bf16Data(packed_));
  });
  if (bias.defined() && !SkipsLoops()) LoadFloats(bias, 0, n, bias_.data());
}

void Bf16RowProduct::RunPanels(int64_t first_panel, int64_t end_panel, Bf16Product product) const {
  product.n = n_;
  product.k = k_;
  product.packed_b = Bf16Data(packed_);
  product.bias = bias_.empty() ? nullptr : bias_.data();
  MultiplyBf16Panels(product, first_panel, end_panel);
}

void Bf16WeightGradient::Run(int chunk, int64_t first_leaf, int64_t count, int64_t rows,
                             const Bf16* dy, int64_t first_out, int64_t outs, const Bf16* x,
                             int64_t first_in, int64_t ins) const {
  const int64_t in = sum_.in(), offset = first_out * in + first_in;
  const WeightSum::Place place = sum_.PlaceOf(chunk, first_leaf, count, offset);
  MultiplyBf16({.m = outs,
                .n = ins,
                .k = rows,
                .leaves = static_cast<int>(count),
                .a = dy,
                .packed_b = x,
                .c = place.to,
                .c_stride = in,
                .addends = place.addends(),
                .addend_stride = in});
}

void AddBf16Rows(const Bf16* x, int64_t stride, int64_t rows, int64_t columns,
                 float* __restrict sums) {
  for (int64_t r = 0; r < rows; ++r) {
    for (int64_t i = 0; i < columns; ++i) sums[i] += BFloat16ToFloat(x[r * stride + i]);
  }
}

}  // namespace lockstep::cpu
