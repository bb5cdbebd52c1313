// Linear layers and plain matrix products, tile by tile.

#include <optional>
#include <vector>

#include "core/base/parallel.h"
#include "core/kernels/cpu/bf16_linear.h"
#include "core/kernels/cpu/cpu_kernels.h"
#include "core/kernels/cpu/row_tiles.h"
#include "core/kernels/cpu/span.h"
#include "core/kernels/cpu/tile_gemm.h"
#include "core/kernels/cpu/wide.h"
#include "glog/logging.h"

namespace lockstep {

using cpu::BiasGradient;
using cpu::Cut;
using cpu::RowProduct;
using cpu::WeightGradient;

void CpuKernels::MatMul(const Tensor& a, Transpose transpose_a, const Tensor& b,
                        Transpose transpose_b, Write write, const Tensor& c) {
  Span span(this);
  if (!cpu::AllF32({&a, &b, &c})) {
    cpu::WideOutput wide(*this, c, write);
    MatMul(cpu::Wide(*this, a), transpose_a, cpu::Wide(*this, b), transpose_b, write,
           wide.tensor());
    return wide.Round();
  }
  const int64_t m = c.shape().rows(), n = c.shape()[-1];
  const int64_t k = transpose_a == Transpose::kYes ? a.shape().rows() : a.shape()[-1];
  CHECK_EQ(a.elements(), m * k) << a.shape() << " " << c.shape();
  CHECK_EQ(b.elements(), n * k) << b.shape() << " " << c.shape();
  const RowProduct product(*this, {b.data<float>(), b.shape()[-1], transpose_b}, k, n);
  const Cut tiles = cpu::RowTiles(m);
  cpu::Scratch scratch;
  const bool packs = transpose_a == Transpose::kYes;
  const int64_t packed = scratch.Add(packs ? cpu::PackedLeftSize(tiles.size, k) : 0);
  scratch.Allocate(*this, cpu::TileParts(tiles));
  cpu::ForTiles(tiles, [&](int part, int64_t tile, bool) {
    const int64_t first = tiles.Begin(tile), rows = tiles.Size(tile);
    const float* a_tile = a.data<float>() + first * k;
    if (packs) {
      cpu::PackLeftTransposed(a.data<float>() + first, m, rows, k, scratch.At(part, packed));
      a_tile = scratch.At(part, packed);
    }
    float* c_tile = c.data<float>() + first * n;
    product.Run(rows, a_tile, packs ? 0 : k, c_tile, n,
                write == Write::kAccumulate ? c_tile : nullptr, n);
  });
}

void CpuKernels::Linear(const Tensor& x, const Tensor& w, const Tensor& bias,
                        const Tensor& residual, const Tensor& y) {
  Span span(this);
  const int64_t rows = x.shape().rows(), in = w.shape()[1], out = w.shape()[0];
  CHECK_EQ(x.shape()[-1], in);
  CHECK_EQ(y.elements(), rows * out);
  if (MultipliesBf16(x)) {
    return cpu::LinearBf16(*this, *bf16_products_, x, w, bias, residual, y);
  }
  if (!cpu::AllF32({&x})) {
    cpu::WideOutput wide(*this, y);
    Linear(cpu::Wide(*this, x), cpu::Wide(*this, w), cpu::Wide(*this, bias),
           cpu::Wide(*this, residual), wide.tensor());
    return wide.Round();
  }
  const RowProduct product(*this, {w.data<float>(), in, Transpose::kYes}, in, out,
                           bias.defined() ? bias.data<float>() : nullptr);
  const Cut tiles = cpu::RowTiles(rows);
  cpu::ForTiles(tiles, [&](int, int64_t tile, bool) {
    const int64_t first = tiles.Begin(tile);
    product.Run(tiles.Size(tile), x.data<float>() + first * in, in, y.data<float>() + first * out,
                out, residual.defined() ? residual.data<float>() + first * out : nullptr, out);
  });
}

void CpuKernels::LinearBackward(const Tensor& dy, const Tensor& x, const Tensor& w, Write write,
                                const Tensor& dx, const Tensor& dw, const Tensor& dbias) {
  Span span(this);
  const int64_t in = w.shape()[1], out = w.shape()[0], rows = dy.elements() / out;
  CHECK_EQ(dy.elements(), rows * out);
  if (MultipliesBf16(dy)) {
    return cpu::LinearBackwardBf16(*this, *bf16_products_, dy, x, w, write, dx, dw, dbias);
  }
  if (!cpu::AllF32({&dy})) {
    cpu::WideOutput wide_dx(*this, dx);
    LinearBackward(cpu::Wide(*this, dy), cpu::Wide(*this, x), cpu::Wide(*this, w), write,
                   wide_dx.tensor(), dw, dbias);
    return wide_dx.Round();
  }
  const Cut tiles = cpu::RowTiles(rows), blocks = cpu::WidthBlocks(out);
  const int parts = cpu::TileParts(tiles);
  std::vector<RowProduct> to_input;  // one a block of w's rows
  std::optional<WeightGradient> weight;
  std::optional<BiasGradient> bias;
  for (int64_t b = 0; dx.defined() && b < blocks.count; ++b) {
    to_input.emplace_back(*this, cpu::MatrixView{w.data<float>() + blocks.Begin(b) * in, in},
                          blocks.Size(b), in);
  }
  cpu::Scratch scratch;
  int64_t packed_x = 0, packed_dy = 0;
  if (dw.defined()) {
    weight.emplace(*this, parts, write, dw);
    packed_x = scratch.Add(cpu::PackedRightSize(tiles.size, in));
    packed_dy = scratch.Add(cpu::PackedLeftSize(blocks.size, tiles.size));
  }
  scratch.Allocate(*this, parts);
  if (dbias.defined()) bias.emplace(parts, write, dbias);

  cpu::ForTiles(tiles, [&](int part, int64_t tile, bool first_tile) {
    const int64_t first = tiles.Begin(tile), tile_rows = tiles.Size(tile);
    if (weight) {
      cpu::PackRight({x.data<float>() + first * in, in}, tile_rows, in, scratch.At(part, packed_x));
    }
    for (int64_t b = 0; b < blocks.count; ++b) {
      const int64_t begin = blocks.Begin(b), width = blocks.Size(b);
      const float* dy_block = dy.data<float>() + first * out + begin;
      if (dx.defined()) {
        float* dx_tile = dx.data<float>() + first * in;
        to_input[b].Run(tile_rows, dy_block, out, dx_tile, in, b > 0 ? dx_tile : nullptr, in);
      }
      if (weight) {
        cpu::PackLeftTransposed(dy_block, out, width, tile_rows, scratch.At(part, packed_dy));
        weight->Run(part, first_tile, tile_rows, scratch.At(part, packed_dy), begin, width,
                    scratch.At(part, packed_x), 0, in);
      }
      if (bias) bias->Run(part, dy_block, out, tile_rows, begin, width);
    }
  });
  if (weight) weight->Finish();
  if (bias) bias->Finish();
}

}  // namespace lockstep
