#include "core/kernels/cpu/bf16_linear.h"

#include <algorithm>
#include <cstring>
#include <optional>
#include <vector>

#include "core/base/half.h"
#include "core/base/parallel.h"
#include "core/kernels/cpu/float_elements.h"
#include "core/kernels/cpu/row_tiles.h"
#include "core/kernels/cpu/vector_math.h"
#include "core/kernels/cpu/weight_sum.h"
#include "glog/logging.h"

namespace lockstep::cpu {
namespace {

using Spec = Bf16Products::Spec;

// bf16 elements as the host's integers.
using Bits = uint16_t;
Bits* Data(const Tensor& t) { return reinterpret_cast<Bits*>(t.raw()); }

// rows[m, n] = a[m, k] b[k, n] (+ bias) (+ what they hold) for tiles of at most `tile_rows` rows,
// with a b that all of them share and that is packed once.
class Bf16RowProduct {
 public:
  // b[k, n], or its transpose [n, k] as a linear layer's weight lies.
  Bf16RowProduct(Bf16Products& products, const Cut& tiles, const Tensor& b, Transpose transpose_b,
                 const Tensor& bias, Write write)
      : bias_(bias) {
    Spec spec = {.m = tiles.size,
                 .n = b.shape()[transpose_b == Transpose::kYes ? 0 : 1],
                 .k = b.shape()[transpose_b == Transpose::kYes ? 1 : 0],
                 .transpose_b = transpose_b,
                 .right = Spec::Right::kPacked,
                 .bias = bias.defined() ? Spec::Bias::kRow : Spec::Bias::kNone,
                 .write = write};
    tile_rows_ = tiles.size;
    whole_ = &products.Get(spec);
    packed_ = packed_for_last_ = products.Pack(spec, b);
    spec.m = tiles.Size(tiles.count - 1);
    last_ = &products.Get(spec);
    if (last_->right() != whole_->right()) packed_for_last_ = products.Pack(spec, b);
  }

  int64_t scratch_bytes() const {
    return std::max(whole_->scratch_bytes(), last_->scratch_bytes());
  }
  void Run(int64_t rows, const Bits* a, Bits* c, void* scratch) const {
    const bool whole = rows == tile_rows_;
    const void* bias = bias_.defined() ? bias_.raw() : nullptr;
    (whole ? whole_ : last_)->Run(a, (whole ? packed_ : packed_for_last_).raw(), bias, c, scratch);
  }

 private:
  Tensor packed_, packed_for_last_, bias_;
  int64_t tile_rows_ = 0;
  const Bf16Products::Product* whole_;
  const Bf16Products::Product* last_;  // of the last tile, which may be shorter
};

// dw[out, in] (+)= dy^T x over all leaves, from the leaves' dy [rows, out] and x [rows, in].
class Bf16WeightGradient {
 public:
  Bf16WeightGradient(Kernels& kernels, Bf16Products& products, const Cut& leaves, Write write,
                     const Tensor& dw)
      : leaf_rows_(leaves.size), sum_(kernels, leaves, TileParts(leaves), write, dw) {
    for (const bool last : {false, true}) {
      products_[last] = &products.Get({.m = sum_.out(),
                                       .n = sum_.in(),
                                       .k = last ? leaves.Size(leaves.count - 1) : leaves.size,
                                       .transpose_a = Transpose::kYes,
                                       .c = DType::kF32});
    }
    product_ =
        kernels.Empty({TileParts(leaves), dw.elements()}, DType::kF32, MemoryClass::kWorkspace);
  }

  int64_t scratch_bytes() const {
    return std::max(products_[0]->scratch_bytes(), products_[1]->scratch_bytes());
  }
  void Run(int part, int64_t leaf, int64_t rows, const Bits* dy, const Bits* x,
           void* scratch) const {
    const int64_t elements = sum_.out() * sum_.in();
    float* product = product_.data<float>() + part * elements;
    products_[rows != leaf_rows_]->Run(dy, x, nullptr, product, scratch);
    const WeightSum::Place place = sum_.PlaceOf(part, leaf);
    for (const float* addend : place.addends()) {
      for (int64_t i = 0; i < elements; ++i) product[i] += addend[i];
    }
    std::copy_n(product, elements, place.to);
  }
  void Finish() const { sum_.Finish(); }

 private:
  int64_t leaf_rows_;
  WeightSum sum_;
  Tensor product_;
  const Bf16Products::Product* products_[2];  // by whether the leaf is the last
};

// Adds the rows of dy [rows, width] to the sums of a leaf.
void AddBf16Rows(const Bits* dy, int64_t rows, int64_t width, int part, int64_t leaf,
                 LeafSums& sums) {
  float* leaf_sums = sums.Open(part, leaf);
  for (int64_t r = 0; r < rows; ++r) {
    for (int64_t i = 0; i < width; ++i) leaf_sums[i] += BFloat16ToFloat(dy[r * width + i]);
  }
  sums.Close(part);
}

// What a product adds to must be there before: the tile of the residual.
void CopyTile(const Tensor& from, int64_t first, int64_t count, const Tensor& to) {
  if (!from.defined()) return;
  std::memcpy(Data(to) + first, Data(from) + first, count * sizeof(Bits));
}

// Bytes as the floats that Scratch counts in.
int64_t Floats(int64_t bytes) { return (bytes + 3) / 4; }

}  // namespace

void LinearBf16(Kernels& kernels, Bf16Products& products, const Tensor& x, const Tensor& w,
                const Tensor& bias, const Tensor& residual, const Tensor& y) {
  const int64_t in = w.shape()[1], out = w.shape()[0];
  const Cut tiles = LeafTiles(x.elements() / in);
  const Bf16RowProduct product(products, tiles, w, Transpose::kYes, bias,
                               residual.defined() ? Write::kAccumulate : Write::kOverwrite);
  Scratch scratch;
  const int64_t place = scratch.Add(Floats(product.scratch_bytes()));
  scratch.Allocate(kernels, TileParts(tiles));
  ForTiles(tiles, [&](int part, int64_t tile) {
    const int64_t first = tiles.Begin(tile), rows = tiles.Size(tile);
    CopyTile(residual, first * out, rows * out, y);
    product.Run(rows, Data(x) + first * in, Data(y) + first * out, scratch.At(part, place));
  });
}

void LinearBackwardBf16(Kernels& kernels, Bf16Products& products, const Tensor& dy, const Tensor& x,
                        const Tensor& w, Write write, const Tensor& dx, const Tensor& dw,
                        const Tensor& dbias) {
  const int64_t in = w.shape()[1], out = w.shape()[0];
  const Cut tiles = LeafTiles(dy.elements() / out);
  const int parts = TileParts(tiles);
  std::optional<Bf16RowProduct> to_input;
  std::optional<Bf16WeightGradient> weight;
  std::optional<LeafSums> bias;
  int64_t scratch_bytes = 0;
  if (dx.defined()) {
    to_input.emplace(products, tiles, w, Transpose::kNo, Tensor(), Write::kOverwrite);
    scratch_bytes = to_input->scratch_bytes();
  }
  if (dw.defined()) {
    weight.emplace(kernels, products, tiles, write, dw);
    scratch_bytes = std::max(scratch_bytes, weight->scratch_bytes());
  }
  if (dbias.defined()) bias.emplace(tiles.count, parts, out);
  Scratch scratch;
  const int64_t place = scratch.Add(Floats(scratch_bytes));
  scratch.Allocate(kernels, parts);
  ForTiles(tiles, [&](int part, int64_t tile) {
    const int64_t first = tiles.Begin(tile), rows = tiles.Size(tile);
    const Bits* dy_tile = Data(dy) + first * out;
    void* memory = scratch.At(part, place);
    if (to_input) to_input->Run(rows, dy_tile, Data(dx) + first * in, memory);
    if (weight) weight->Run(part, tile, rows, dy_tile, Data(x) + first * in, memory);
    if (bias) AddBf16Rows(dy_tile, rows, out, part, tile, *bias);
  });
  if (weight) weight->Finish();
  if (bias) WriteSums(bias->Finish(), write, dbias);
}

void GeluNetworkBf16(Kernels& kernels, Bf16Products& products, const Tensor& x, const Tensor& up,
                     const Tensor& up_bias, const Tensor& down, const Tensor& down_bias,
                     const Tensor& residual, const Tensor& pre, const Tensor& y) {
  const int64_t width = up.shape()[1], hidden = up.shape()[0];
  const Cut tiles = LeafTiles(x.elements() / width);
  const Bf16RowProduct to_hidden(products, tiles, up, Transpose::kYes, up_bias, Write::kOverwrite);
  const Bf16RowProduct to_output(products, tiles, down, Transpose::kYes, down_bias,
                                 residual.defined() ? Write::kAccumulate : Write::kOverwrite);
  Scratch scratch;
  const int64_t activated =
      scratch.Add(Floats(tiles.size * hidden * static_cast<int64_t>(sizeof(Bits))));
  const int64_t place =
      scratch.Add(Floats(std::max(to_hidden.scratch_bytes(), to_output.scratch_bytes())));
  scratch.Allocate(kernels, TileParts(tiles));
  ForTiles(tiles, [&](int part, int64_t tile) {
    const int64_t first = tiles.Begin(tile), rows = tiles.Size(tile);
    void* memory = scratch.At(part, place);
    Bits* pre_tile = Data(pre) + first * hidden;
    to_hidden.Run(rows, Data(x) + first * width, pre_tile, memory);
    auto* gelu = reinterpret_cast<Bits*>(scratch.At(part, activated));
    for (int64_t i = 0; i < rows * hidden; ++i) {
      gelu[i] = FloatToBFloat16(Gelu(BFloat16ToFloat(pre_tile[i])));
    }
    CopyTile(residual, first * width, rows * width, y);
    to_output.Run(rows, gelu, Data(y) + first * width, memory);
  });
}

void GeluNetworkBackwardBf16(Kernels& kernels, Bf16Products& products, const Tensor& x,
                             const Tensor& pre, const Tensor& up, const Tensor& down,
                             const Tensor& dy, Write write,
                             const Kernels::GeluNetworkGradients& gradients) {
  const int64_t width = up.shape()[1], hidden = up.shape()[0];
  const Cut tiles = LeafTiles(dy.elements() / width);
  const int parts = TileParts(tiles);
  const Bf16RowProduct to_hidden(products, tiles, down, Transpose::kNo, Tensor(),
                                 Write::kOverwrite);
  int64_t scratch_bytes = to_hidden.scratch_bytes();
  std::optional<Bf16RowProduct> to_input;
  if (gradients.x.defined()) {
    to_input.emplace(products, tiles, up, Transpose::kNo, Tensor(), Write::kOverwrite);
    scratch_bytes = std::max(scratch_bytes, to_input->scratch_bytes());
  }
  std::optional<Bf16WeightGradient> up_gradient, down_gradient;
  std::optional<LeafSums> up_bias, down_bias;
  if (gradients.up.defined()) {
    up_gradient.emplace(kernels, products, tiles, write, gradients.up);
    scratch_bytes = std::max(scratch_bytes, up_gradient->scratch_bytes());
  }
  if (gradients.down.defined()) {
    down_gradient.emplace(kernels, products, tiles, write, gradients.down);
    scratch_bytes = std::max(scratch_bytes, down_gradient->scratch_bytes());
  }
  if (gradients.up_bias.defined()) up_bias.emplace(tiles.count, parts, hidden);
  if (gradients.down_bias.defined()) down_bias.emplace(tiles.count, parts, width);
  Scratch scratch;
  const int64_t tile_floats = Floats(tiles.size * hidden * static_cast<int64_t>(sizeof(Bits)));
  const int64_t hidden_gelu = scratch.Add(tile_floats), hidden_gradient = scratch.Add(tile_floats);
  const int64_t place = scratch.Add(Floats(scratch_bytes));
  scratch.Allocate(kernels, parts);
  ForTiles(tiles, [&](int part, int64_t tile) {
    const int64_t first = tiles.Begin(tile), rows = tiles.Size(tile);
    const Bits* dy_tile = Data(dy) + first * width;
    const Bits* pre_tile = Data(pre) + first * hidden;
    auto* __restrict gelu = reinterpret_cast<Bits*>(scratch.At(part, hidden_gelu));
    auto* __restrict dpre = reinterpret_cast<Bits*>(scratch.At(part, hidden_gradient));
    void* memory = scratch.At(part, place);
    to_hidden.Run(rows, dy_tile, dpre, memory);
    for (int64_t i = 0; i < rows * hidden; ++i) {
      const auto [value, slope] = GeluWithDerivative(BFloat16ToFloat(pre_tile[i]));
      gelu[i] = FloatToBFloat16(value);
      dpre[i] = FloatToBFloat16(BFloat16ToFloat(dpre[i]) * slope);
    }
    if (to_input) to_input->Run(rows, dpre, Data(gradients.x) + first * width, memory);
    if (up_gradient) {
      up_gradient->Run(part, tile, rows, dpre, Data(x) + first * width, memory);
    }
    if (down_gradient) down_gradient->Run(part, tile, rows, dy_tile, gelu, memory);
    if (up_bias) AddBf16Rows(dpre, rows, hidden, part, tile, *up_bias);
    if (down_bias) AddBf16Rows(dy_tile, rows, width, part, tile, *down_bias);
  });
  if (up_gradient) up_gradient->Finish();
  if (down_gradient) down_gradient->Finish();
  if (up_bias) WriteSums(up_bias->Finish(), write, gradients.up_bias);
  if (down_bias) WriteSums(down_bias->Finish(), write, gradients.down_bias);
}

}  // namespace lockstep::cpu
