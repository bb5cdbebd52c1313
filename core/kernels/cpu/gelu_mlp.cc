// A transformer's MLP: two linear layers with GELU between them. The hidden layer is cut into
// blocks as well: what a tile of rows holds of it goes from one product to the next in cache, and
// in backward its GELU is made again there instead of being stored. The blocks are those of a
// product's chain (kInnerBlock), so the bits are those of the layers one by one, which is how an
// MLP is computed where there are fewer tiles than threads.

#include <algorithm>
#include <iterator>  // std::ssize
#include <optional>
#include <vector>

#include "core/base/parallel.h"  // SkipsLoops
#include "core/kernels/cpu/bf16_linear.h"
#include "core/kernels/cpu/cpu_kernels.h"
#include "core/kernels/cpu/leaf_product.h"
#include "core/kernels/cpu/row_tiles.h"
#include "core/kernels/cpu/span.h"
#include "core/kernels/cpu/tile_gemm.h"
#include "core/kernels/cpu/vector_math.h"
#include "core/kernels/cpu/weight_sum.h"
#include "core/kernels/cpu/wide.h"
#include "core/kernels/feature_leaves.h"
#include "glog/logging.h"

namespace lockstep {
namespace {

using cpu::LeafProduct;
using cpu::LeafSums;
using cpu::MatrixView;
using cpu::RowProduct;
using cpu::Tiling;
using cpu::WeightGradient;

const float* DataOrNull(const Tensor& t) { return t.defined() ? t.data<float>() : nullptr; }

// With too few leaves of rows for the threads, who then share columns too, an operation at a time.
void GeluMlpByOperations(CpuKernels& kernels, const Tensor& x, const Tensor& up,
                         const Tensor& up_bias, const Tensor& down, const Tensor& down_bias,
                         const Tensor& residual, const FeatureLeaves& features, const Tensor& pre,
                         const Tensor& y) {
  kernels.Linear(x, up, up_bias, Tensor(), pre);
  if (IsWhole(features, up.shape()[0])) {
    return kernels.GeluLinear(pre, down, down_bias, residual, y);
  }
  const Tensor gelu = kernels.Empty(pre.shape(), pre.dtype(), MemoryClass::kWorkspace);
  kernels.Gelu(pre, gelu);
  kernels.LinearByLeaves(gelu, down, features, y);
}

void GeluMlpBackwardByOperations(CpuKernels& kernels, const Tensor& x, const Tensor& pre,
                                 const Tensor& up, const Tensor& down,
                                 const FeatureLeaves& features, const Tensor& dy, Write write,
                                 const Kernels::GeluMlpGradients& gradients) {
  const auto workspace = [&] {
    return kernels.Empty(pre.shape(), pre.dtype(), MemoryClass::kWorkspace);
  };
  const Tensor gelu = workspace(), dpre = workspace();
  if (gradients.down.defined()) kernels.Gelu(pre, gelu);
  kernels.LinearBackward(dy, gelu, down, write, dpre, gradients.down, gradients.down_bias);
  kernels.GeluBackward(pre, dpre, dpre);
  kernels.LinearBackwardByLeaves(dpre, x, up, features, write, gradients.x, gradients.up,
                                 gradients.up_bias);
}

bool RowsSuffice(const Tensor& x) { return cpu::LeavesSuffice(cpu::LeafTiles(x.shape().rows())); }

// Sums over hidden features are made by the leaves `features`, one range each, which together are
// all of them. down_bias and residual are for one leaf.
void GeluMlpF32(CpuKernels& kernels, const Tensor& x, const Tensor& up, const Tensor& up_bias,
                const Tensor& down, const Tensor& down_bias, const Tensor& residual,
                const FeatureLeaves& features, const Tensor& pre, const Tensor& y) {
  const int64_t rows = x.shape().rows(), width = up.shape()[1], hidden = up.shape()[0];
  const Tiling tiles = cpu::LeafTiles(rows);
  std::vector<RowProduct> to_hidden;  // one a block
  LeafProduct to_output(kernels, std::ssize(features), width);
  for (const std::vector<Range>& leaf : features) {
    to_output.AddLeaf({down.data<float>() + leaf[0].first, hidden, Transpose::kYes}, leaf[0].count,
                      DataOrNull(down_bias));
  }
  const auto& blocks = to_output.blocks();
  const auto first_hidden = [&](size_t b) {
    return features[static_cast<size_t>(blocks[b].leaf)][0].first + blocks[b].begin;
  };
  for (size_t b = 0; b < blocks.size(); ++b) {
    const int64_t begin = first_hidden(b);
    to_hidden.emplace_back(kernels,
                           MatrixView{up.data<float>() + begin * width, width, Transpose::kYes},
                           width, blocks[b].size, up_bias.data<float>() + begin);
  }
  cpu::Scratch scratch;
  const int64_t activated = scratch.Add(tiles.size * std::min(hidden, cpu::kInnerBlock));
  const int64_t nodes = scratch.Add(to_output.ScratchSize(tiles.size));
  scratch.Allocate(kernels, cpu::TileChunks(tiles));
  cpu::ForTiles(tiles, [&](int chunk, int64_t tile) {
    const int64_t first = tiles.Begin(tile), tile_rows = tiles.Size(tile);
    float* gelu = scratch.At(chunk, activated);
    float* y_tile = y.data<float>() + first * width;
    const float* addend = residual.defined() ? residual.data<float>() + first * width : nullptr;
    for (size_t b = 0; b < blocks.size(); ++b) {
      const int64_t size = blocks[b].size;
      float* pre_block = pre.data<float>() + first * hidden + first_hidden(b);
      to_hidden[b].Run(tile_rows, x.data<float>() + first * width, width, pre_block, hidden);
      for (int64_t r = 0; r < tile_rows; ++r) {
        for (int64_t i = 0; i < size; ++i)
          gelu[r * size + i] = cpu::Gelu(pre_block[r * hidden + i]);
      }
      to_output.Run(b, tile_rows, gelu, size, y_tile, scratch.At(chunk, nodes),
                    b == 0 ? addend : nullptr);
    }
  });
}

void GeluMlpBackwardF32(CpuKernels& kernels, const Tensor& x, const Tensor& pre, const Tensor& up,
                        const Tensor& down, const FeatureLeaves& features, const Tensor& dy,
                        Write write, const Kernels::GeluMlpGradients& gradients) {
  const int64_t width = up.shape()[1], hidden = up.shape()[0];
  const Tiling leaves = cpu::LeafTiles(x.shape().rows());
  const int chunks = cpu::TileChunks(leaves);
  struct HiddenBlock {
    int64_t begin, size;
  };
  std::vector<HiddenBlock> blocks;
  std::vector<RowProduct> to_hidden;  // one a block
  std::vector<LeafSums> up_bias;      // one a block
  LeafProduct to_input(kernels, std::ssize(features), width);
  int64_t block_size = 0;  // of the largest
  for (const std::vector<Range>& leaf : features) {
    const Tiling of_leaf = cpu::InnerBlocks(leaf[0].count);
    for (int64_t b = 0; b < of_leaf.count; ++b) {
      const int64_t begin = leaf[0].first + of_leaf.Begin(b), size = of_leaf.Size(b);
      blocks.push_back({begin, size});
      block_size = std::max(block_size, size);
      to_hidden.emplace_back(kernels, MatrixView{down.data<float>() + begin, hidden}, width, size);
      up_bias.emplace_back(leaves.count, chunks, size);
    }
    if (gradients.x.defined()) {
      to_input.AddLeaf({up.data<float>() + leaf[0].first * width, width}, leaf[0].count);
    }
  }
  std::optional<WeightGradient> up_gradient, down_gradient;
  std::optional<LeafSums> down_bias;
  if (gradients.up.defined()) up_gradient.emplace(kernels, leaves, chunks, write, gradients.up);
  if (gradients.down.defined())
    down_gradient.emplace(kernels, leaves, chunks, write, gradients.down);
  if (gradients.down_bias.defined()) down_bias.emplace(leaves.count, chunks, width);
  cpu::Scratch scratch;
  const int64_t hidden_gelu = scratch.Add(leaves.size * block_size);
  const int64_t hidden_gradient = scratch.Add(leaves.size * block_size);
  const int64_t packed_x = scratch.Add(cpu::kLeafGroup * cpu::PackedRightSize(leaves.size, width));
  const int64_t packed_dy = scratch.Add(cpu::kLeafGroup * cpu::PackedLeftSize(width, leaves.size));
  const int64_t packed_gelu =
      scratch.Add(cpu::kLeafGroup * cpu::PackedRightSize(leaves.size, block_size));
  const int64_t packed_dpre =
      scratch.Add(cpu::kLeafGroup * cpu::PackedLeftSize(block_size, leaves.size));
  const int64_t nodes =
      scratch.Add(gradients.x.defined() ? cpu::kLeafGroup * to_input.ScratchSize(leaves.size) : 0);
  scratch.Allocate(kernels, chunks);

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
    for (size_t b = 0; b < blocks.size(); ++b) {
      const auto [begin, size] = blocks[b];
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
          to_input.Run(b, rows, dpre, size, gradients.x.data<float>() + first_row(i) * width,
                       at(nodes) + i * to_input.ScratchSize(leaves.size));
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
  if (gradients.up_bias.defined() && !SkipsLoops()) {
    std::vector<float> sums(hidden);
    for (size_t b = 0; b < blocks.size(); ++b) {
      std::copy_n(up_bias[b].Finish(), blocks[b].size, sums.begin() + blocks[b].begin);
    }
    cpu::WriteSums(sums.data(), write, gradients.up_bias);
  }
  if (down_bias) down_bias->WriteTo({gradients.down_bias}, write);
}

// Which of the ways suits the rows and the dtype, fp32 or bf16.
auto* MlpFor(const Tensor& x) {
  if (!RowsSuffice(x)) return GeluMlpByOperations;
  return x.dtype() == DType::kBF16 ? cpu::GeluMlpBf16 : GeluMlpF32;
}
auto* MlpBackwardFor(const Tensor& dy) {
  if (!RowsSuffice(dy)) return GeluMlpBackwardByOperations;
  return dy.dtype() == DType::kBF16 ? cpu::GeluMlpBackwardBf16 : GeluMlpBackwardF32;
}

}  // namespace

void CpuKernels::GeluMlp(const Tensor& x, const Tensor& up, const Tensor& up_bias,
                         const Tensor& down, const Tensor& down_bias, const Tensor& residual,
                         const Tensor& pre, const Tensor& y) {
  Span span(this, {x, up, up_bias, down, down_bias, residual}, {pre, y});
  const int64_t rows = x.shape().rows(), hidden = up.shape()[0];
  CHECK_EQ(pre.elements(), rows * hidden);
  if (!MultipliesBf16(x) && !cpu::AllF32({&x})) {
    cpu::WideOutput wide_pre(*this, pre), wide_y(*this, y);
    GeluMlp(cpu::Wide(*this, x), cpu::Wide(*this, up), cpu::Wide(*this, up_bias),
            cpu::Wide(*this, down), cpu::Wide(*this, down_bias), cpu::Wide(*this, residual),
            wide_pre.tensor(), wide_y.tensor());
    wide_pre.Round();
    return wide_y.Round();
  }
  MlpFor(x)(*this, x, up, up_bias, down, down_bias, residual, {{{0, hidden}}}, pre, y);
}

void CpuKernels::GeluMlpByLeaves(const Tensor& x, const Tensor& up, const Tensor& up_bias,
                                 const Tensor& down, const FeatureLeaves& leaves, const Tensor& pre,
                                 const Tensor& y) {
  if (!MultipliesBf16(x) && !cpu::AllF32({&x})) {
    return Kernels::GeluMlpByLeaves(x, up, up_bias, down, leaves, pre, y);
  }
  Span span(this, {x, up, up_bias, down}, {pre, y}, std::ssize(leaves));
  MlpFor(x)(*this, x, up, up_bias, down, Tensor(), Tensor(), leaves, pre, y);
}

void CpuKernels::GeluLinear(const Tensor& pre, const Tensor& down, const Tensor& bias,
                            const Tensor& residual, const Tensor& y) {
  Span span(this, {pre, down, bias, residual}, {y});
  CHECK_EQ(pre.shape()[-1], down.shape()[1]);
  const Tensor gelu = Empty(pre.shape(), pre.dtype(), MemoryClass::kWorkspace);
  Gelu(pre, gelu);
  Linear(gelu, down, bias, residual, y);
}

void CpuKernels::GeluMlpBackward(const Tensor& x, const Tensor& pre, const Tensor& up,
                                 const Tensor& down, const Tensor& dy, Write write,
                                 const GeluMlpGradients& gradients) {
  Span span(this, {x, pre, up, down, dy},
            {gradients.x, gradients.up, gradients.up_bias, gradients.down, gradients.down_bias});
  if (!MultipliesBf16(dy) && !cpu::AllF32({&dy})) {
    cpu::WideOutput wide_dx(*this, gradients.x);
    GeluMlpGradients wide = gradients;
    wide.x = wide_dx.tensor();
    GeluMlpBackward(cpu::Wide(*this, x), cpu::Wide(*this, pre), cpu::Wide(*this, up),
                    cpu::Wide(*this, down), cpu::Wide(*this, dy), write, wide);
    return wide_dx.Round();
  }
  MlpBackwardFor(dy)(*this, x, pre, up, down, {{{0, up.shape()[0]}}}, dy, write, gradients);
}

void CpuKernels::GeluMlpBackwardByLeaves(const Tensor& x, const Tensor& pre, const Tensor& up,
                                         const Tensor& down, const FeatureLeaves& leaves,
                                         const Tensor& dy, Write write,
                                         const GeluMlpGradients& gradients) {
  if (!MultipliesBf16(dy) && !cpu::AllF32({&dy})) {
    return Kernels::GeluMlpBackwardByLeaves(x, pre, up, down, leaves, dy, write, gradients);
  }
  Span span(this, {x, pre, up, down, dy},
            {gradients.x, gradients.up, gradients.up_bias, gradients.down, gradients.down_bias},
            std::ssize(leaves));
  MlpBackwardFor(dy)(*this, x, pre, up, down, leaves, dy, write, gradients);
}

}  // namespace lockstep
