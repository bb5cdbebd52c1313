// A transformer's MLP: two linear layers with GELU between them. The hidden layer is cut into
// blocks as well: what a tile of rows holds of it goes from one product to the next in cache, and
// in backward its GELU is made again there instead of being stored. The blocks are those of a
// product's chain (kInnerBlock), so the bits are those of the layers one by one, which is how an
// MLP is computed where there are fewer tiles than threads.

#include <algorithm>
#include <optional>
#include <vector>

#include "core/kernels/cpu/bf16_linear.h"
#include "core/kernels/cpu/cpu_kernels.h"
#include "core/kernels/cpu/row_tiles.h"
#include "core/kernels/cpu/span.h"
#include "core/kernels/cpu/tile_gemm.h"
#include "core/kernels/cpu/vector_math.h"
#include "core/kernels/cpu/weight_sum.h"
#include "core/kernels/cpu/wide.h"
#include "glog/logging.h"

namespace lockstep {
namespace {

using cpu::LeafSums;
using cpu::MatrixView;
using cpu::RowProduct;
using cpu::Tiling;
using cpu::WeightGradient;

const float* DataOrNull(const Tensor& t) { return t.defined() ? t.data<float>() : nullptr; }

}  // namespace

void CpuKernels::GeluMlp(const Tensor& x, const Tensor& up, const Tensor& up_bias,
                         const Tensor& down, const Tensor& down_bias, const Tensor& residual,
                         const Tensor& pre, const Tensor& y) {
  Span span(this);
  const int64_t rows = x.shape().rows(), width = up.shape()[1], hidden = up.shape()[0];
  CHECK_EQ(pre.elements(), rows * hidden);
  if (MultipliesBf16(x)) {
    return cpu::GeluMlpBf16(*this, x, up, up_bias, down, down_bias, residual, pre, y);
  }
  if (!cpu::AllF32({&x})) {
    cpu::WideOutput wide_pre(*this, pre), wide_y(*this, y);
    GeluMlp(cpu::Wide(*this, x), cpu::Wide(*this, up), cpu::Wide(*this, up_bias),
            cpu::Wide(*this, down), cpu::Wide(*this, down_bias), cpu::Wide(*this, residual),
            wide_pre.tensor(), wide_y.tensor());
    wide_pre.Round();
    return wide_y.Round();
  }
  const Tiling tiles = cpu::LeafTiles(rows), blocks = cpu::InnerBlocks(hidden);
  if (!cpu::LeavesSuffice(tiles)) {
    Linear(x, up, up_bias, Tensor(), pre);
    return GeluLinear(pre, down, down_bias, residual, y);
  }
  std::vector<RowProduct> to_hidden, to_output;  // one a block
  for (int64_t b = 0; b < blocks.count; ++b) {
    const int64_t begin = blocks.Begin(b), size = blocks.Size(b);
    to_hidden.emplace_back(*this,
                           MatrixView{up.data<float>() + begin * width, width, Transpose::kYes},
                           width, size, up_bias.data<float>() + begin);
    to_output.emplace_back(*this, MatrixView{down.data<float>() + begin, hidden, Transpose::kYes},
                           size, width, b == 0 ? DataOrNull(down_bias) : nullptr);
  }
  cpu::Scratch scratch;
  const int64_t activated = scratch.Add(tiles.size * blocks.size);
  scratch.Allocate(*this, cpu::TileChunks(tiles));
  cpu::ForTiles(tiles, [&](int chunk, int64_t tile) {
    const int64_t first = tiles.Begin(tile), tile_rows = tiles.Size(tile);
    float* gelu = scratch.At(chunk, activated);
    float* y_tile = y.data<float>() + first * width;
    const float* addend = residual.defined() ? residual.data<float>() + first * width : nullptr;
    for (int64_t b = 0; b < blocks.count; ++b) {
      const int64_t size = blocks.Size(b);
      float* pre_block = pre.data<float>() + first * hidden + blocks.Begin(b);
      to_hidden[b].Run(tile_rows, x.data<float>() + first * width, width, pre_block, hidden);
      for (int64_t r = 0; r < tile_rows; ++r) {
        for (int64_t i = 0; i < size; ++i)
          gelu[r * size + i] = cpu::Gelu(pre_block[r * hidden + i]);
      }
      to_output[b].Run(tile_rows, gelu, size, y_tile, width, b == 0 ? addend : y_tile, width);
    }
  });
}

void CpuKernels::GeluLinear(const Tensor& pre, const Tensor& down, const Tensor& bias,
                            const Tensor& residual, const Tensor& y) {
  Span span(this);
  CHECK_EQ(pre.shape()[-1], down.shape()[1]);
  const Tensor gelu = Empty(pre.shape(), pre.dtype(), MemoryClass::kWorkspace);
  Gelu(pre, gelu);
  Linear(gelu, down, bias, residual, y);
}

void CpuKernels::GeluMlpBackward(const Tensor& x, const Tensor& pre, const Tensor& up,
                                 const Tensor& down, const Tensor& dy, Write write,
                                 const GeluMlpGradients& gradients) {
  Span span(this);
  if (MultipliesBf16(dy)) {
    return cpu::GeluMlpBackwardBf16(*this, x, pre, up, down, dy, write, gradients);
  }
  if (!cpu::AllF32({&dy})) {
    cpu::WideOutput wide_dx(*this, gradients.x);
    GeluMlpGradients wide = gradients;
    wide.x = wide_dx.tensor();
    GeluMlpBackward(cpu::Wide(*this, x), cpu::Wide(*this, pre), cpu::Wide(*this, up),
                    cpu::Wide(*this, down), cpu::Wide(*this, dy), write, wide);
    return wide_dx.Round();
  }
  const int64_t width = up.shape()[1], hidden = up.shape()[0];
  const Tiling leaves = cpu::LeafTiles(x.shape().rows()), blocks = cpu::InnerBlocks(hidden);
  if (!cpu::LeavesSuffice(leaves)) {
    const Tensor gelu = Workspace(pre.shape()), dpre = Workspace(pre.shape());
    if (gradients.down.defined()) Gelu(pre, gelu);
    LinearBackward(dy, gelu, down, write, dpre, gradients.down, gradients.down_bias);
    GeluBackward(pre, dpre, dpre);
    return LinearBackward(dpre, x, up, write, gradients.x, gradients.up, gradients.up_bias);
  }
  const int chunks = cpu::TileChunks(leaves);
  std::vector<RowProduct> to_hidden, to_input;  // one a block
  std::vector<LeafSums> up_bias;                // one a block
  for (int64_t b = 0; b < blocks.count; ++b) {
    const int64_t begin = blocks.Begin(b), size = blocks.Size(b);
    to_hidden.emplace_back(*this, MatrixView{down.data<float>() + begin, hidden}, width, size);
    if (gradients.x.defined()) {
      to_input.emplace_back(*this, MatrixView{up.data<float>() + begin * width, width}, size,
                            width);
    }
    up_bias.emplace_back(leaves.count, chunks, size);
  }
  std::optional<WeightGradient> up_gradient, down_gradient;
  std::optional<LeafSums> down_bias;
  if (gradients.up.defined()) up_gradient.emplace(*this, leaves, chunks, write, gradients.up);
  if (gradients.down.defined()) down_gradient.emplace(*this, leaves, chunks, write, gradients.down);
  if (gradients.down_bias.defined()) down_bias.emplace(leaves.count, chunks, width);
  cpu::Scratch scratch;
  const int64_t hidden_gelu = scratch.Add(leaves.size * blocks.size);
  const int64_t hidden_gradient = scratch.Add(leaves.size * blocks.size);
  const int64_t packed_x = scratch.Add(cpu::kLeafGroup * cpu::PackedRightSize(leaves.size, width));
  const int64_t packed_dy = scratch.Add(cpu::kLeafGroup * cpu::PackedLeftSize(width, leaves.size));
  const int64_t packed_gelu =
      scratch.Add(cpu::kLeafGroup * cpu::PackedRightSize(leaves.size, blocks.size));
  const int64_t packed_dpre =
      scratch.Add(cpu::kLeafGroup * cpu::PackedLeftSize(blocks.size, leaves.size));
  scratch.Allocate(*this, chunks);

  cpu::ForLeafGroups(leaves, [&](int chunk, int64_t first_leaf, int64_t count) {
    const auto at = [&](int64_t buffer) { return scratch.At(chunk, buffer); };
    const int64_t rows = leaves.Size(first_leaf);
    const auto first_row = [&](int64_t i) { return leaves.Begin(first_leaf + i); };
    const auto dy_leaf = [&](int64_t i) { return dy.data<float>() + first_row(i) * width; };
    for (int64_t i = 0; i < count; ++i) {
      if (up_gradient) {
        cpu::PackRight({x.data<float>() + first_row(i) * width, width}, rows, width,
                       at(packed_x) + i * cpu::PackedRightSize(rows, width));
      }
      if (down_gradient) {
        cpu::PackLeftTransposed(dy_leaf(i), width, width, rows,
                                at(packed_dy) + i * cpu::PackedLeftSize(width, rows));
      }
      if (down_bias) {
        cpu::AddRows(dy_leaf(i), width, rows, width, down_bias->Open(chunk, first_leaf + i));
        down_bias->Close(chunk);
      }
    }
    for (int64_t b = 0; b < blocks.count; ++b) {
      const int64_t begin = blocks.Begin(b), size = blocks.Size(b);
      float* gelu = at(hidden_gelu);
      float* dpre = at(hidden_gradient);
      for (int64_t i = 0; i < count; ++i) {
        const float* pre_block = pre.data<float>() + first_row(i) * hidden + begin;
        to_hidden[b].Run(rows, dy_leaf(i), width, dpre, size);
        for (int64_t r = 0; r < rows; ++r) {
          for (int64_t k = 0; k < size; ++k) {
            const auto [value, slope] = cpu::GeluWithDerivative(pre_block[r * hidden + k]);
            gelu[r * size + k] = value;
            dpre[r * size + k] *= slope;
          }
        }
        if (gradients.x.defined()) {
          float* dx_tile = gradients.x.data<float>() + first_row(i) * width;
          to_input[b].Run(rows, dpre, size, dx_tile, width, b > 0 ? dx_tile : nullptr, width);
        }
        if (gradients.up_bias.defined()) {
          cpu::AddRows(dpre, size, rows, size, up_bias[b].Open(chunk, first_leaf + i));
          up_bias[b].Close(chunk);
        }
        if (up_gradient) {
          cpu::PackLeftTransposed(dpre, size, size, rows,
                                  at(packed_dpre) + i * cpu::PackedLeftSize(size, rows));
        }
        if (down_gradient) {
          cpu::PackRight({gelu, size}, rows, size,
                         at(packed_gelu) + i * cpu::PackedRightSize(rows, size));
        }
      }
      if (up_gradient) {
        up_gradient->Run(chunk, first_leaf, count, rows, at(packed_dpre), begin, size, at(packed_x),
                         0, width);
      }
      if (down_gradient) {
        down_gradient->Run(chunk, first_leaf, count, rows, at(packed_dy), 0, width, at(packed_gelu),
                           begin, size);
      }
    }
  });
  if (up_gradient) up_gradient->Finish();
  if (down_gradient) down_gradient->Finish();
  if (gradients.up_bias.defined()) {
    std::vector<float> sums(hidden);
    for (int64_t b = 0; b < blocks.count; ++b) {
      std::copy_n(up_bias[b].Finish(), blocks.Size(b), sums.begin() + blocks.Begin(b));
    }
    cpu::WriteSums(sums.data(), write, gradients.up_bias);
  }
  if (down_bias) cpu::WriteSums(down_bias->Finish(), write, gradients.down_bias);
}

}  // namespace lockstep
