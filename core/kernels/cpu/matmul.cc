// Linear layers and plain matrix products in fp32, tile by tile.

#include <iterator>  // std::ssize
#include <optional>
#include <vector>

#include "core/base/parallel.h"
#include "core/kernels/cpu/bf16_linear.h"
#include "core/kernels/cpu/cpu_kernels.h"
#include "core/kernels/cpu/leaf_product.h"
#include "core/kernels/cpu/row_tiles.h"
#include "core/kernels/cpu/span.h"
#include "core/kernels/cpu/tile_gemm.h"
#include "core/kernels/cpu/weight_sum.h"
#include "core/kernels/cpu/wide.h"
#include "core/kernels/feature_leaves.h"
#include "glog/logging.h"

namespace lockstep {

using cpu::LeafProduct;
using cpu::LeafSums;
using cpu::RowProduct;
using cpu::Tiling;
using cpu::WeightGradient;

void CpuKernels::MatMul(const Tensor& a, Transpose transpose_a, const Tensor& b,
                        Transpose transpose_b, Write write, const Tensor& c) {
  Span span(this, {a, b}, {c});
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
  const cpu::ProductTiles tiles = cpu::TileProducts(m, n);
  cpu::Scratch scratch;
  const bool packs = transpose_a == Transpose::kYes;
  const int64_t packed = scratch.Add(packs ? cpu::PackedLeftSize(tiles.rows.size, k) : 0);
  scratch.Allocate(*this, cpu::ProductChunks(tiles));
  cpu::ForProducts(tiles, [&](int chunk, int64_t first, int64_t rows, int64_t panel, int64_t end) {
    const float* a_tile = a.data<float>() + first * k;
    if (packs) {
      cpu::PackLeftTransposed(a.data<float>() + first, m, rows, k, scratch.At(chunk, packed));
      a_tile = scratch.At(chunk, packed);
    }
    float* c_tile = c.data<float>() + first * n;
    const float* addend = c_tile;
    product.RunPanels(panel, end, rows, a_tile, packs ? 0 : k, c_tile, n,
                      {&addend, size_t{write == Write::kAccumulate ? 1u : 0u}}, n);
  });
}

void CpuKernels::Linear(const Tensor& x, const Tensor& w, const Tensor& bias,
                        const Tensor& residual, const Tensor& y) {
  Span span(this, {x, w, bias, residual}, {y});
  const int64_t rows = x.shape().rows(), in = w.shape()[1], out = w.shape()[0];
  CHECK_EQ(x.shape()[-1], in);
  CHECK_EQ(y.elements(), rows * out);
  if (MultipliesBf16(x)) {
    return cpu::LinearBf16(*this, x, w, bias, residual, y);
  }
  if (!cpu::AllF32({&x})) {
    cpu::WideOutput wide(*this, y);
    Linear(cpu::Wide(*this, x), cpu::Wide(*this, w), cpu::Wide(*this, bias),
           cpu::Wide(*this, residual), wide.tensor());
    return wide.Round();
  }
  const RowProduct product(*this, {w.data<float>(), in, Transpose::kYes}, in, out,
                           bias.defined() ? bias.data<float>() : nullptr);
  cpu::ForProducts(cpu::TileProducts(rows, out), [&](int, int64_t first, int64_t count,
                                                     int64_t panel, int64_t end) {
    const float* addend = residual.defined() ? residual.data<float>() + first * out : nullptr;
    product.RunPanels(panel, end, count, x.data<float>() + first * in, in,
                      y.data<float>() + first * out, out,
                      {&addend, size_t{addend != nullptr ? 1u : 0u}}, out);
  });
}

void CpuKernels::LinearByLeaves(const Tensor& x, const Tensor& w, const FeatureLeaves& leaves,
                                const Tensor& y) {
  const FeatureLeaves filled = cpu::FilledLeaves(leaves);
  if (MultipliesBf16(x) && !filled.empty()) {
    Span span(this, {x, w}, {y}, std::ssize(filled));
    return cpu::LinearByLeavesBf16(*this, x, w, filled, y);
  }
  if (!cpu::AllF32({&x}) || filled.empty()) return Kernels::LinearByLeaves(x, w, leaves, y);
  Span span(this, {x, w}, {y}, std::ssize(filled));
  const int64_t rows = x.shape().rows(), in = w.shape()[1], out = w.shape()[0];
  LeafProduct product(*this, std::ssize(filled), out);
  for (const std::vector<Range>& leaf : filled) {
    const Tensor own = leaf.size() == 1 ? w : TakeColumns(*this, w, leaf);
    product.AddLeaf({own.data<float>() + (leaf.size() == 1 ? leaf[0].first : 0), own.shape()[1],
                     Transpose::kYes},
                    FeaturesOf(leaf));
  }
  cpu::MultiplyRowsByLeaves(*this, product, filled, x.data<float>(), rows, in, y.data<float>(),
                            out);
}

namespace {

// dw (+)= dy^T x where the leaves are too few for the threads: these share the rows of dw, each in
// all leaves.
void WeightGradientByOutputs(CpuKernels& kernels, const Tensor& dy, const Tensor& x, Write write,
                             const Tensor& dw) {
  const int64_t out = dw.shape()[0], in = dw.elements() / out;
  const Tiling leaves = cpu::LeafTiles(dy.elements() / out);
  const WeightGradient weight(kernels, leaves, /*chunks=*/1, write, dw);
  const int64_t x_size = cpu::PackedRightSize(leaves.size, in);
  const Tensor packed_x =
      kernels.Empty({leaves.count, x_size}, DType::kF32, MemoryClass::kWorkspace);
  const int64_t panels = cpu::RightPanels(in);
  ParallelFor(leaves.count * panels, 1, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const int64_t leaf = i / panels, panel = i % panels;
      cpu::PackRight({x.data<float>() + leaves.Begin(leaf) * in, in}, leaves.Size(leaf), in, panel,
                     panel + 1, packed_x.data<float>() + leaf * x_size);
    }
  });
  const Tiling blocks = cpu::OutputBlocks(out);
  cpu::Scratch scratch;
  const int64_t packed_dy = scratch.Add(cpu::PackedLeftSize(blocks.size, leaves.size));
  scratch.Allocate(kernels, cpu::TileChunks(blocks));
  cpu::ForTiles(blocks, [&](int chunk, int64_t block) {
    const int64_t first_out = blocks.Begin(block), outs = blocks.Size(block);
    float* packed = scratch.At(chunk, packed_dy);
    for (int64_t leaf = 0; leaf < leaves.count; ++leaf) {
      const int64_t rows = leaves.Size(leaf);
      cpu::PackLeftTransposed(dy.data<float>() + leaves.Begin(leaf) * out + first_out, out, outs,
                              rows, packed);
      weight.Run(0, leaf, 1, rows, packed, first_out, outs, packed_x.data<float>() + leaf * x_size,
                 0, in);
    }
  });
  weight.Finish();
}

// dx is summed by the leaves `features`, all of which have some.
void LinearBackwardF32(CpuKernels& kernels, const Tensor& dy, const Tensor& x, const Tensor& w,
                       const FeatureLeaves& features, Write write, const Tensor& dx,
                       const Tensor& dw, const Tensor& dbias) {
  const int64_t in = w.shape()[1], out = w.shape()[0], rows = dy.elements() / out;
  const Tiling leaves = cpu::LeafTiles(rows);
  LeafProduct to_input(kernels, std::ssize(features), in);
  const bool shares_rows = cpu::LeavesSuffice(leaves);
  const bool is_one_chain = IsWhole(features, out);
  for (size_t i = 0; dx.defined() && (shares_rows || !is_one_chain) && i < features.size(); ++i) {
    std::vector<cpu::RightRows> leaf;
    int64_t steps = 0;
    for (const Range& range : features[i]) {
      leaf.push_back({{w.data<float>() + range.first * in, in}, steps, range.count});
      steps += range.count;
    }
    to_input.AddLeaf(leaf);
  }
  if (!shares_rows) {
    if (dx.defined() && is_one_chain) {
      kernels.MatMul(dy, Transpose::kNo, w, Transpose::kNo, Write::kOverwrite, dx);
    } else if (dx.defined()) {
      cpu::MultiplyRowsByLeaves(kernels, to_input, features, dy.data<float>(), rows, out,
                                dx.data<float>(), in);
    }
    if (dw.defined()) WeightGradientByOutputs(kernels, dy, x, write, dw);
    if (dbias.defined()) kernels.ColumnSums(dy, write, dbias);
    return;
  }
  const Tiling blocks = cpu::InnerBlocks(out);
  const int chunks = cpu::TileChunks(leaves);
  std::optional<WeightGradient> weight;
  std::optional<LeafSums> bias;
  cpu::Scratch scratch;
  int64_t packed_x = 0, packed_dy = 0;
  const int64_t nodes = scratch.Add(dx.defined() ? to_input.ScratchSize(leaves.size) : 0);
  const int64_t gathered = scratch.Add(leaves.size * cpu::MostGathered(features));
  const int64_t x_size = cpu::PackedRightSize(leaves.size, in);
  if (dw.defined()) {
    weight.emplace(kernels, leaves, chunks, write, dw);
    packed_x = scratch.Add(cpu::kLeafGroup * x_size);
    packed_dy = scratch.Add(cpu::kLeafGroup * cpu::PackedLeftSize(blocks.size, leaves.size));
  }
  scratch.Allocate(kernels, chunks);
  if (dbias.defined()) bias.emplace(leaves.count, chunks, out);

  cpu::ForLeafGroups(leaves, [&](int chunk, int64_t first_leaf, int64_t count) {
    const auto at = [&](int64_t buffer) { return scratch.At(chunk, buffer); };
    const int64_t leaf_rows = leaves.Size(first_leaf);
    const auto dy_leaf = [&](int64_t i) {
      return dy.data<float>() + leaves.Begin(first_leaf + i) * out;
    };
    for (int64_t i = 0; i < count; ++i) {
      const int64_t first = leaves.Begin(first_leaf + i);
      if (dx.defined()) {
        cpu::MultiplyTileByLeaves(to_input, features, 0, cpu::RightPanels(in), leaf_rows,
                                  dy_leaf(i), out, dx.data<float>() + first * in, at(nodes),
                                  at(gathered));
      }
      if (bias) {
        cpu::AddRows(dy_leaf(i), out, leaf_rows, out, bias->Open(chunk, first_leaf + i));
        bias->Close(chunk);
      }
      if (weight) {
        cpu::PackRight({x.data<float>() + first * in, in}, leaf_rows, in,
                       at(packed_x) + i * cpu::PackedRightSize(leaf_rows, in));
      }
    }
    if (!weight) return;
    for (int64_t b = 0; b < blocks.count; ++b) {
      const int64_t begin = blocks.Begin(b), width = blocks.Size(b);
      for (int64_t i = 0; i < count; ++i) {
        cpu::PackLeftTransposed(dy_leaf(i) + begin, out, width, leaf_rows,
                                at(packed_dy) + i * cpu::PackedLeftSize(width, leaf_rows));
      }
      weight->Run(chunk, first_leaf, count, leaf_rows, at(packed_dy), begin, width, at(packed_x), 0,
                  in);
    }
  });
  if (weight) weight->Finish();
  if (bias) bias->WriteTo({dbias}, write);
}

}  // namespace

void CpuKernels::LinearBackward(const Tensor& dy, const Tensor& x, const Tensor& w, Write write,
                                const Tensor& dx, const Tensor& dw, const Tensor& dbias) {
  Span span(this, {dy, x, w}, {dx, dw, dbias});
  const int64_t out = w.shape()[0];
  CHECK_EQ(dy.elements() % out, 0);
  if (MultipliesBf16(dy)) {
    return cpu::LinearBackwardBf16(*this, dy, x, w, {{{0, out}}}, write, dx, dw, dbias);
  }
  if (!cpu::AllF32({&dy})) {
    cpu::WideOutput wide_dx(*this, dx);
    LinearBackward(cpu::Wide(*this, dy), cpu::Wide(*this, x), cpu::Wide(*this, w), write,
                   wide_dx.tensor(), dw, dbias);
    return wide_dx.Round();
  }
  LinearBackwardF32(*this, dy, x, w, {{{0, out}}}, write, dx, dw, dbias);
}

void CpuKernels::LinearBackwardByLeaves(const Tensor& dy, const Tensor& x, const Tensor& w,
                                        const FeatureLeaves& leaves, Write write, const Tensor& dx,
                                        const Tensor& dw, const Tensor& dbias) {
  if (!dx.defined()) return LinearBackward(dy, x, w, write, dx, dw, dbias);
  const FeatureLeaves filled = cpu::FilledLeaves(leaves);
  if (filled.empty() || (!MultipliesBf16(dy) && !cpu::AllF32({&dy}))) {
    return Kernels::LinearBackwardByLeaves(dy, x, w, leaves, write, dx, dw, dbias);
  }
  Span span(this, {dy, x, w}, {dx, dw, dbias}, std::ssize(filled));
  if (MultipliesBf16(dy)) {
    return cpu::LinearBackwardBf16(*this, dy, x, w, filled, write, dx, dw, dbias);
  }
  LinearBackwardF32(*this, dy, x, w, filled, write, dx, dw, dbias);
}

}  // namespace lockstep
