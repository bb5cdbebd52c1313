#include "core/kernels/cpu/bf16_linear.h"

#include <iterator>  // std::ssize
#include <optional>
#include <vector>

#include "core/base/parallel.h"
#include "core/kernels/cpu/bf16_tiles.h"
#include "core/kernels/cpu/leaf_product.h"
#include "core/kernels/feature_leaves.h"

namespace lockstep::cpu {
namespace {

// rows[m, n] = a[m, k] b (+ residual), for all rows, shared by threads as ForProducts does.
void MultiplyRows(const Bf16RowProduct& product, const Bf16* a, int64_t m, int64_t k, int64_t n,
                  const Bf16* residual, Bf16* c) {
  ForProducts(TileProducts(m, n),
              [&](int, int64_t first, int64_t rows, int64_t panel, int64_t end) {
                product.RunPanels(panel, end,
                                  {.m = rows,
                                   .a = a + first * k,
                                   .a_stride = k,
                                   .c_bf16 = c + first * n,
                                   .c_stride = n,
                                   .residual = residual == nullptr ? nullptr : residual + first * n,
                                   .residual_stride = n});
              });
}

// dw (+)= dy^T x where the leaves are too few for the threads: these share the rows of dw, each in
// all leaves.
void WeightGradientByOutputs(Kernels& kernels, const Tensor& dy, const Tensor& x, Write write,
                             const Tensor& dw) {
  const int64_t out = dw.shape()[0], in = dw.elements() / out;
  const Tiling leaves = LeafTiles(dy.elements() / out);
  const Bf16WeightGradient weight(kernels, leaves, /*chunks=*/1, write, dw);
  const int64_t x_size = PackedBf16RightSize(leaves.size, in), panels = RightPanels(in);
  const Tensor packed =
      kernels.Empty({leaves.count, x_size}, DType::kBF16, MemoryClass::kWorkspace);
  const auto packed_x = [&](int64_t leaf) { return Bf16Data(packed) + leaf * x_size; };
  ParallelFor(leaves.count * panels, 1, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const int64_t leaf = i / panels, panel = i % panels;
      PackBf16Right({Bf16Data(x) + leaves.Begin(leaf) * in, in}, leaves.Size(leaf), in, panel,
                    panel + 1, packed_x(leaf));
    }
  });
  const Tiling blocks = OutputBlocks(out);
  Scratch scratch;
  const int64_t packed_dy = scratch.Add(Bf16Floats(PackedBf16LeftSize(blocks.size, leaves.size)));
  scratch.Allocate(kernels, TileChunks(blocks));
  ForTiles(blocks, [&](int chunk, int64_t block) {
    const int64_t first_out = blocks.Begin(block), outs = blocks.Size(block);
    auto* dy_block = reinterpret_cast<Bf16*>(scratch.At(chunk, packed_dy));
    for (int64_t leaf = 0; leaf < leaves.count; ++leaf) {
      const int64_t rows = leaves.Size(leaf);
      PackBf16LeftTransposed(Bf16Data(dy) + leaves.Begin(leaf) * out + first_out, out, outs, rows,
                             dy_block);
      weight.Run(0, leaf, 1, rows, dy_block, first_out, outs, packed_x(leaf), 0, in);
    }
  });
  weight.Finish();
}

}  // namespace

void LinearBf16(Kernels& kernels, const Tensor& x, const Tensor& w, const Tensor& bias,
                const Tensor& residual, const Tensor& y) {
  const int64_t in = w.shape()[1], out = w.shape()[0];
  const Bf16RowProduct product(kernels, {Bf16Data(w), in, Transpose::kYes}, in, out, bias);
  MultiplyRows(product, Bf16Data(x), x.elements() / in, in, out, Bf16Data(residual), Bf16Data(y));
}

void LinearByLeavesBf16(Kernels& kernels, const Tensor& x, const Tensor& w,
                        const FeatureLeaves& features, const Tensor& y) {
  const int64_t in = w.shape()[1], out = w.shape()[0];
  Bf16LeafProduct product(kernels, std::ssize(features), out);
  for (const std::vector<Range>& leaf : features) {
    const Tensor own = leaf.size() == 1 ? w : TakeColumns(kernels, w, leaf);
    product.AddLeaf(
        {Bf16Data(own) + (leaf.size() == 1 ? leaf[0].first : 0), own.shape()[1], Transpose::kYes},
        FeaturesOf(leaf));
  }
  MultiplyRowsByLeaves(kernels, product, features, Bf16Data(x), x.elements() / in, in, Bf16Data(y),
                       out);
}

void LinearBackwardBf16(Kernels& kernels, const Tensor& dy, const Tensor& x, const Tensor& w,
                        const FeatureLeaves& features, Write write, const Tensor& dx,
                        const Tensor& dw, const Tensor& dbias) {
  const int64_t in = w.shape()[1], out = w.shape()[0], rows = dy.elements() / out;
  const Tiling leaves = LeafTiles(rows);
  Bf16LeafProduct to_input(kernels, std::ssize(features), in);
  for (size_t i = 0; dx.defined() && i < features.size(); ++i) {
    const std::vector<Range>& leaf = features[i];
    const Tensor own = leaf.size() == 1 ? w : TakeRows(kernels, w, leaf);
    to_input.AddLeaf({Bf16Data(own) + (leaf.size() == 1 ? leaf[0].first * in : 0), in},
                     FeaturesOf(leaf));
  }
  if (!LeavesSuffice(leaves)) {
    if (dx.defined()) {
      MultiplyRowsByLeaves(kernels, to_input, features, Bf16Data(dy), rows, out, Bf16Data(dx), in);
    }
    if (dw.defined()) WeightGradientByOutputs(kernels, dy, x, write, dw);
    if (dbias.defined()) kernels.ColumnSums(dy, write, dbias);
    return;
  }
  // So many outputs at a time that their packed dy stays near.
  const Tiling blocks = InnerBlocks(out);
  const int chunks = TileChunks(leaves);
  std::optional<Bf16WeightGradient> weight;
  std::optional<LeafSums> bias;
  Scratch scratch;
  const int64_t x_size = PackedBf16RightSize(leaves.size, in);
  int64_t packed_x = 0, packed_dy = 0;
  const int64_t nodes = scratch.Add(dx.defined() ? to_input.ScratchSize(leaves.size) : 0);
  const int64_t gathered = scratch.Add(Bf16Floats(leaves.size * MostGathered(features)));
  if (dw.defined()) {
    weight.emplace(kernels, leaves, chunks, write, dw);
    packed_x = scratch.Add(Bf16Floats(kLeafGroup * x_size));
    packed_dy = scratch.Add(Bf16Floats(kLeafGroup * PackedBf16LeftSize(blocks.size, leaves.size)));
  }
  scratch.Allocate(kernels, chunks);
  if (dbias.defined()) bias.emplace(leaves.count, chunks, out);
  ForLeafGroups(leaves, [&](int chunk, int64_t first_leaf, int64_t count) {
    const auto at = [&](int64_t buffer) {
      return reinterpret_cast<Bf16*>(scratch.At(chunk, buffer));
    };
    const int64_t leaf_rows = leaves.Size(first_leaf);
    for (int64_t i = 0; i < count; ++i) {
      const int64_t first = leaves.Begin(first_leaf + i);
      const Bf16* dy_leaf = Bf16Data(dy) + first * out;
      if (dx.defined()) {
        MultiplyTileByLeaves(to_input, features, 0, RightPanels(in), leaf_rows, dy_leaf, out,
                             Bf16Data(dx) + first * in, at(nodes), at(gathered));
      }
      if (bias) {
        AddBf16Rows(dy_leaf, out, leaf_rows, out, bias->Open(chunk, first_leaf + i));
        bias->Close(chunk);
      }
      if (weight) {
        PackBf16Right({Bf16Data(x) + first * in, in}, leaf_rows, in,
                      at(packed_x) + i * PackedBf16RightSize(leaf_rows, in));
      }
    }
    if (!weight) return;
    for (int64_t b = 0; b < blocks.count; ++b) {
      const int64_t begin = blocks.Begin(b), width = blocks.Size(b);
      for (int64_t i = 0; i < count; ++i) {
        PackBf16LeftTransposed(Bf16Data(dy) + leaves.Begin(first_leaf + i) * out + begin, out,
                               width, leaf_rows,
                               at(packed_dy) + i * PackedBf16LeftSize(width, leaf_rows));
      }
      weight->Run(chunk, first_leaf, count, leaf_rows, at(packed_dy), begin, width, at(packed_x), 0,
                  in);
    }
  });
  if (weight) weight->Finish();
  if (bias) bias->WriteTo({dbias}, write);
}

}  // namespace lockstep::cpu
