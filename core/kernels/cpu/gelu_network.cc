// A transformer's network of two linear layers with GELU between them. The hidden layer is cut into
// blocks as well: what a tile of rows holds of it goes from one product to the next in cache, and
// in backward its GELU is made again there instead of being stored.

#include <optional>
#include <vector>

#include "core/kernels/cpu/bf16_linear.h"
#include "core/kernels/cpu/cpu_kernels.h"
#include "core/kernels/cpu/row_tiles.h"
#include "core/kernels/cpu/span.h"
#include "core/kernels/cpu/tile_gemm.h"
#include "core/kernels/cpu/vector_math.h"
#include "core/kernels/cpu/wide.h"
#include "glog/logging.h"

namespace lockstep {
namespace {

using cpu::BiasGradient;
using cpu::Cut;
using cpu::MatrixView;
using cpu::RowProduct;
using cpu::WeightGradient;

const float* DataOrNull(const Tensor& t) { return t.defined() ? t.data<float>() : nullptr; }

// y = gelu(pre) down^T + bias + residual, block by block of the hidden layer, in fp32. Calls
// make_pre(block, first row, rows, where) before it reads a tile's block of `pre`.
template <typename MakePre>
void SumHiddenBlocks(CpuKernels& kernels, const Tensor& pre, const Tensor& down, const Tensor& bias,
                     const Tensor& residual, const Tensor& y, MakePre&& make_pre) {
  const int64_t rows = pre.shape().rows(), width = down.shape()[0], hidden = down.shape()[1];
  const Cut tiles = cpu::RowTiles(rows), blocks = cpu::WidthBlocks(hidden);
  std::vector<RowProduct> product;  // one a block
  for (int64_t b = 0; b < blocks.count; ++b) {
    product.emplace_back(kernels,
                         MatrixView{down.data<float>() + blocks.Begin(b), hidden, Transpose::kYes},
                         blocks.Size(b), width, b == 0 ? DataOrNull(bias) : nullptr);
  }
  cpu::Scratch scratch;
  const int64_t activated = scratch.Add(tiles.size * blocks.size);
  scratch.Allocate(kernels, cpu::TileParts(tiles));
  cpu::ForTiles(tiles, [&](int part, int64_t tile, bool) {
    const int64_t first = tiles.Begin(tile), tile_rows = tiles.Size(tile);
    float* gelu = scratch.At(part, activated);
    float* y_tile = y.data<float>() + first * width;
    const float* addend = residual.defined() ? residual.data<float>() + first * width : nullptr;
    for (int64_t b = 0; b < blocks.count; ++b) {
      const int64_t size = blocks.Size(b);
      float* pre_block = pre.data<float>() + first * hidden + blocks.Begin(b);
      make_pre(b, first, tile_rows, pre_block);
      for (int64_t r = 0; r < tile_rows; ++r) {
        for (int64_t i = 0; i < size; ++i)
          gelu[r * size + i] = cpu::Gelu(pre_block[r * hidden + i]);
      }
      product[b].Run(tile_rows, gelu, size, y_tile, width, b == 0 ? addend : y_tile, width);
    }
  });
}

}  // namespace

void CpuKernels::GeluNetwork(const Tensor& x, const Tensor& up, const Tensor& up_bias,
                             const Tensor& down, const Tensor& down_bias, const Tensor& residual,
                             const Tensor& pre, const Tensor& y) {
  Span span(this);
  const int64_t rows = x.shape().rows(), width = up.shape()[1], hidden = up.shape()[0];
  CHECK_EQ(pre.elements(), rows * hidden);
  if (MultipliesBf16(x)) {
    return cpu::GeluNetworkBf16(*this, *bf16_products_, x, up, up_bias, down, down_bias, residual,
                                pre, y);
  }
  if (!cpu::AllF32({&x})) {
    cpu::WideOutput wide_pre(*this, pre), wide_y(*this, y);
    GeluNetwork(cpu::Wide(*this, x), cpu::Wide(*this, up), cpu::Wide(*this, up_bias),
                cpu::Wide(*this, down), cpu::Wide(*this, down_bias), cpu::Wide(*this, residual),
                wide_pre.tensor(), wide_y.tensor());
    wide_pre.Round();
    return wide_y.Round();
  }
  const Cut blocks = cpu::WidthBlocks(hidden);
  std::vector<RowProduct> product;  // one a block
  for (int64_t b = 0; b < blocks.count; ++b) {
    const int64_t begin = blocks.Begin(b);
    product.emplace_back(*this,
                         MatrixView{up.data<float>() + begin * width, width, Transpose::kYes},
                         width, blocks.Size(b), up_bias.data<float>() + begin);
  }
  SumHiddenBlocks(*this, pre, down, down_bias, residual, y,
                  [&](int64_t b, int64_t first, int64_t tile_rows, float* pre_block) {
                    product[b].Run(tile_rows, x.data<float>() + first * width, width, pre_block,
                                   hidden);
                  });
}

void CpuKernels::GeluLinear(const Tensor& pre, const Tensor& down, const Tensor& bias,
                            const Tensor& residual, const Tensor& y) {
  Span span(this);
  CHECK_EQ(pre.shape()[-1], down.shape()[1]);
  if (!cpu::AllF32({&pre})) {
    const Tensor gelu = EmptyLike(pre);
    Gelu(pre, gelu);
    return Linear(gelu, down, bias, residual, y);
  }
  SumHiddenBlocks(*this, pre, down, bias, residual, y, [](int64_t, int64_t, int64_t, float*) {});
}

void CpuKernels::GeluNetworkBackward(const Tensor& x, const Tensor& pre, const Tensor& up,
                                     const Tensor& down, const Tensor& dy, Write write,
                                     const GeluNetworkGradients& gradients) {
  Span span(this);
  if (MultipliesBf16(dy)) {
    return cpu::GeluNetworkBackwardBf16(*this, *bf16_products_, x, pre, up, down, dy, write,
                                        gradients);
  }
  if (!cpu::AllF32({&dy})) {
    cpu::WideOutput wide_dx(*this, gradients.x);
    GeluNetworkGradients wide = gradients;
    wide.x = wide_dx.tensor();
    GeluNetworkBackward(cpu::Wide(*this, x), cpu::Wide(*this, pre), cpu::Wide(*this, up),
                        cpu::Wide(*this, down), cpu::Wide(*this, dy), write, wide);
    return wide_dx.Round();
  }
  const int64_t rows = x.shape().rows(), width = up.shape()[1], hidden = up.shape()[0];
  const Cut tiles = cpu::RowTiles(rows), blocks = cpu::WidthBlocks(hidden);
  const int parts = cpu::TileParts(tiles);
  std::vector<RowProduct> to_hidden, to_input;  // one a block
  for (int64_t b = 0; b < blocks.count; ++b) {
    const int64_t begin = blocks.Begin(b), size = blocks.Size(b);
    to_hidden.emplace_back(*this, MatrixView{down.data<float>() + begin, hidden}, width, size);
    if (gradients.x.defined()) {
      to_input.emplace_back(*this, MatrixView{up.data<float>() + begin * width, width}, size,
                            width);
    }
  }
  std::optional<WeightGradient> up_gradient, down_gradient;
  std::optional<BiasGradient> up_bias, down_bias;
  if (gradients.up.defined()) up_gradient.emplace(*this, parts, write, gradients.up);
  if (gradients.down.defined()) down_gradient.emplace(*this, parts, write, gradients.down);
  if (gradients.up_bias.defined()) up_bias.emplace(parts, write, gradients.up_bias);
  if (gradients.down_bias.defined()) down_bias.emplace(parts, write, gradients.down_bias);
  cpu::Scratch scratch;
  const int64_t hidden_gelu = scratch.Add(tiles.size * blocks.size);
  const int64_t hidden_gradient = scratch.Add(tiles.size * blocks.size);
  const int64_t packed_x = scratch.Add(cpu::PackedRightSize(tiles.size, width));
  const int64_t packed_dy = scratch.Add(cpu::PackedLeftSize(width, tiles.size));
  const int64_t packed_gelu = scratch.Add(cpu::PackedRightSize(tiles.size, blocks.size));
  const int64_t packed_dpre = scratch.Add(cpu::PackedLeftSize(blocks.size, tiles.size));
  scratch.Allocate(*this, parts);

  cpu::ForTiles(tiles, [&](int part, int64_t tile, bool first_tile) {
    const auto at = [&](int64_t piece) { return scratch.At(part, piece); };
    const int64_t first = tiles.Begin(tile), tile_rows = tiles.Size(tile);
    const float* x_tile = x.data<float>() + first * width;
    const float* dy_tile = dy.data<float>() + first * width;
    if (up_gradient) cpu::PackRight({x_tile, width}, tile_rows, width, at(packed_x));
    if (down_gradient) {
      cpu::PackLeftTransposed(dy_tile, width, width, tile_rows, at(packed_dy));
    }
    if (down_bias) down_bias->Run(part, dy_tile, width, tile_rows, 0, width);
    for (int64_t b = 0; b < blocks.count; ++b) {
      const int64_t begin = blocks.Begin(b), size = blocks.Size(b);
      const float* pre_block = pre.data<float>() + first * hidden + begin;
      float* gelu = at(hidden_gelu);
      float* dpre = at(hidden_gradient);
      to_hidden[b].Run(tile_rows, dy_tile, width, dpre, size);
      for (int64_t r = 0; r < tile_rows; ++r) {
        for (int64_t i = 0; i < size; ++i) {
          const auto [value, slope] = cpu::GeluWithDerivative(pre_block[r * hidden + i]);
          gelu[r * size + i] = value;
          dpre[r * size + i] *= slope;
        }
      }
      if (gradients.x.defined()) {
        float* dx_tile = gradients.x.data<float>() + first * width;
        to_input[b].Run(tile_rows, dpre, size, dx_tile, width, b > 0 ? dx_tile : nullptr, width);
      }
      if (up_gradient) {
        cpu::PackLeftTransposed(dpre, size, size, tile_rows, at(packed_dpre));
        up_gradient->Run(part, first_tile, tile_rows, at(packed_dpre), begin, size, at(packed_x), 0,
                         width);
      }
      if (down_gradient) {
        cpu::PackRight({gelu, size}, tile_rows, size, at(packed_gelu));
        down_gradient->Run(part, first_tile, tile_rows, at(packed_dy), 0, width, at(packed_gelu),
                           begin, size);
      }
      if (up_bias) up_bias->Run(part, dpre, size, tile_rows, begin, size);
    }
  });
  if (up_gradient) up_gradient->Finish();
  if (down_gradient) down_gradient->Finish();
  if (up_bias) up_bias->Finish();
  if (down_bias) down_bias->Finish();
}

}  // namespace lockstep
