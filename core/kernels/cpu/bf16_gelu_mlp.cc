// A transformer's MLP in bf16: two linear layers with GELU between them. As in fp32 (gelu_mlp.cc),
// what a tile of rows holds of a block of the hidden layer goes from one product to the next in
// cache. The bits are those of the layers one by one.

#include <iterator>  // std::ssize
#include <optional>
#include <vector>

#include "core/base/half.h"
#include "core/kernels/cpu/bf16_linear.h"
#include "core/kernels/cpu/bf16_tiles.h"
#include "core/kernels/cpu/leaf_product.h"
#include "core/kernels/cpu/vector_math.h"
#include "core/kernels/feature_leaves.h"

namespace lockstep::cpu {
namespace {

// to = gelu(pre)
void GeluOf(const Bf16* pre, int64_t count, Bf16* __restrict to) {
  for (int64_t i = 0; i < count; ++i) to[i] = FloatToBFloat16(Gelu(BFloat16ToFloat(pre[i])));
}

// to = gelu(pre) and gradient *= the derivative of gelu at pre, `width` columns of `rows` rows; no
// gaps between the rows of `to`, as many as in `pre` between those of `gradient`.
void GeluRowsBackward(const Bf16* pre, int64_t stride, int64_t rows, int64_t width,
                      Bf16* __restrict to, Bf16* __restrict gradient) {
  for (int64_t r = 0; r < rows; ++r) {
    for (int64_t i = 0; i < width; ++i) {
      const auto [value, slope] = GeluWithDerivative(BFloat16ToFloat(pre[r * stride + i]));
      Bf16& slot = gradient[r * stride + i];
      to[r * width + i] = FloatToBFloat16(value);
      slot = FloatToBFloat16(BFloat16ToFloat(slot) * slope);
    }
  }
}

}  // namespace

void GeluMlpBf16(CpuKernels& kernels, const Tensor& x, const Tensor& up, const Tensor& up_bias,
                 const Tensor& down, const Tensor& down_bias, const Tensor& residual,
                 const FeatureLeaves& features, const Tensor& pre, const Tensor& y) {
  const int64_t width = up.shape()[1], hidden = up.shape()[0];
  const Tiling tiles = LeafTiles(x.elements() / width);
  const Bf16RowProduct to_hidden(kernels, {Bf16Data(up), width, Transpose::kYes}, width, hidden,
                                 up_bias);
  Bf16LeafProduct to_output(kernels, std::ssize(features), width);
  for (const std::vector<Range>& leaf : features) {
    to_output.AddLeaf({Bf16Data(down) + leaf[0].first, hidden, Transpose::kYes}, leaf[0].count,
                      down_bias);
  }
  Scratch scratch;
  const int64_t activated = scratch.Add(Bf16Floats(tiles.size * hidden));
  const int64_t nodes = scratch.Add(to_output.ScratchSize(tiles.size));
  scratch.Allocate(kernels, TileChunks(tiles));
  ForTiles(tiles, [&](int chunk, int64_t tile) {
    const int64_t first = tiles.Begin(tile), rows = tiles.Size(tile);
    Bf16* pre_tile = Bf16Data(pre) + first * hidden;
    auto* gelu = reinterpret_cast<Bf16*>(scratch.At(chunk, activated));
    to_hidden.Run({.m = rows,
                   .a = Bf16Data(x) + first * width,
                   .a_stride = width,
                   .c_bf16 = pre_tile,
                   .c_stride = hidden});
    GeluOf(pre_tile, rows * hidden, gelu);
    for (size_t i = 0; i < features.size(); ++i) {
      to_output.Run(static_cast<int64_t>(i), rows, gelu + features[i][0].first, hidden,
                    Bf16Data(y) + first * width, reinterpret_cast<Bf16*>(scratch.At(chunk, nodes)),
                    residual.defined() ? Bf16Data(residual) + first * width : nullptr);
    }
  });
}

void GeluMlpBackwardBf16(CpuKernels& kernels, const Tensor& x, const Tensor& pre, const Tensor& up,
                         const Tensor& down, const FeatureLeaves& features, const Tensor& dy,
                         Write write, const Kernels::GeluMlpGradients& gradients) {
  const int64_t width = up.shape()[1], hidden = up.shape()[0];
  const Tiling leaves = LeafTiles(dy.elements() / width), blocks = InnerBlocks(hidden);
  const int chunks = TileChunks(leaves);
  Bf16LeafProduct to_input(kernels, std::ssize(features), width);
  std::vector<Bf16RowProduct> to_hidden;  // one a block
  for (int64_t b = 0; b < blocks.count; ++b) {
    to_hidden.emplace_back(kernels, Bf16View{Bf16Data(down) + blocks.Begin(b), hidden}, width,
                           blocks.Size(b));
  }
  for (size_t i = 0; gradients.x.defined() && i < features.size(); ++i) {
    to_input.AddLeaf({Bf16Data(up) + features[i][0].first * width, width}, features[i][0].count);
  }
  std::optional<Bf16WeightGradient> up_gradient, down_gradient;
  std::optional<LeafSums> up_bias, down_bias;
  if (gradients.up.defined()) up_gradient.emplace(kernels, leaves, chunks, write, gradients.up);
  if (gradients.down.defined()) {
    down_gradient.emplace(kernels, leaves, chunks, write, gradients.down);
  }
  if (gradients.up_bias.defined()) up_bias.emplace(leaves.count, chunks, hidden);
  if (gradients.down_bias.defined()) down_bias.emplace(leaves.count, chunks, width);
  Scratch scratch;
  const auto add = [&](int64_t elements) { return scratch.Add(Bf16Floats(elements)); };
  const int64_t nodes = scratch.Add(gradients.x.defined() ? to_input.ScratchSize(leaves.size) : 0);
  const int64_t group_rows = kLeafGroup * leaves.size;
  const int64_t hidden_gelu = add(leaves.size * blocks.size);
  const int64_t hidden_gradient = add(group_rows * hidden);
  const int64_t packed_x = add(kLeafGroup * PackedBf16RightSize(leaves.size, width));
  const int64_t packed_dy = add(kLeafGroup * PackedBf16LeftSize(width, leaves.size));
  const int64_t packed_gelu = add(kLeafGroup * PackedBf16RightSize(leaves.size, blocks.size));
  const int64_t packed_dpre = add(kLeafGroup * PackedBf16LeftSize(blocks.size, leaves.size));
  scratch.Allocate(kernels, chunks);

  ForLeafGroups(leaves, [&](int chunk, int64_t first_leaf, int64_t count) {
    const auto at = [&](int64_t buffer) {
      return reinterpret_cast<Bf16*>(scratch.At(chunk, buffer));
    };
    const int64_t rows = leaves.Size(first_leaf);
    const auto dy_leaf = [&](int64_t i) {
      return Bf16Data(dy) + leaves.Begin(first_leaf + i) * width;
    };
    const auto dpre_leaf = [&](int64_t i) { return at(hidden_gradient) + i * rows * hidden; };
    for (int64_t i = 0; i < count; ++i) {
      if (up_gradient) {
        PackBf16Right({Bf16Data(x) + leaves.Begin(first_leaf + i) * width, width}, rows, width,
                      at(packed_x) + i * PackedBf16RightSize(rows, width));
      }
      if (down_gradient) {
        PackBf16LeftTransposed(dy_leaf(i), width, width, rows,
                               at(packed_dy) + i * PackedBf16LeftSize(width, rows));
      }
      if (down_bias) {
        AddBf16Rows(dy_leaf(i), width, rows, width, down_bias->Open(chunk, first_leaf + i));
        down_bias->Close(chunk);
      }
    }
    for (int64_t b = 0; b < blocks.count; ++b) {
      const int64_t begin = blocks.Begin(b), size = blocks.Size(b);
      for (int64_t i = 0; i < count; ++i) {
        Bf16* dpre = dpre_leaf(i) + begin;
        to_hidden[b].Run(
            {.m = rows, .a = dy_leaf(i), .a_stride = width, .c_bf16 = dpre, .c_stride = hidden});
        GeluRowsBackward(Bf16Data(pre) + leaves.Begin(first_leaf + i) * hidden + begin, hidden,
                         rows, size, at(hidden_gelu), dpre);
        if (up_gradient) {
          PackBf16LeftTransposed(dpre, hidden, size, rows,
                                 at(packed_dpre) + i * PackedBf16LeftSize(size, rows));
        }
        if (down_gradient) {
          PackBf16Right({at(hidden_gelu), size}, rows, size,
                        at(packed_gelu) + i * PackedBf16RightSize(rows, size));
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
    for (int64_t i = 0; i < count; ++i) {
      if (up_bias) {
        AddBf16Rows(dpre_leaf(i), hidden, rows, hidden, up_bias->Open(chunk, first_leaf + i));
        up_bias->Close(chunk);
      }
      if (gradients.x.defined()) {
        MultiplyTileByLeaves(to_input, features, 0, RightPanels(width), rows, dpre_leaf(i), hidden,
                             Bf16Data(gradients.x) + leaves.Begin(first_leaf + i) * width,
                             at(nodes), nullptr);
      }
    }
  });
  if (up_gradient) up_gradient->Finish();
  if (down_gradient) down_gradient->Finish();
  if (up_bias) up_bias->WriteTo({gradients.up_bias}, write);
  if (down_bias) down_bias->WriteTo({gradients.down_bias}, write);
}

}  // namespace lockstep::cpu
