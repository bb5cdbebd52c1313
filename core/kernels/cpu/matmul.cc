// Matrix products on oneDNN. The products of linear layers are cut into tiles of rows, one thread
// each: whatever surrounds a product (bias, GELU, the second product that reads the same rows) meets
// its tile in the second-level cache. At a transformer's sizes the arithmetic would otherwise wait
// for memory a third of the time.

#include <algorithm>
#include <optional>
#include <vector>

#include "core/base/parallel.h"
#include "core/kernels/cpu/cpu_kernels.h"
#include "core/kernels/cpu/primitive_cache.h"
#include "core/kernels/cpu/span.h"
#include "core/kernels/cpu/vector_math.h"
#include "glog/logging.h"
#include "dnnl.h"  // dnnl_sgemm

namespace lockstep {
namespace {

using cpu::PrimitiveCache;
using TileShape = PrimitiveCache::TileShape;

// Rows of a tile: a product reaches its full speed from about 96 on, and 128 rows of a hidden layer
// of 1536 still leave half of a 2 MiB cache to the weights.
constexpr int64_t kTileRows = 128;

// How `rows` are cut: all tiles have `rows` rows but the last, which has `last`.
struct Tiling {
  explicit Tiling(int64_t total)
      : rows(std::min(kTileRows, total)),
        count((total + rows - 1) / rows),
        last(total - (count - 1) * rows) {}
  int64_t rows, count, last;

  int64_t RowsOf(int64_t tile) const { return tile + 1 == count ? last : rows; }
  int Parts() const { return ParallelParts(count, 1); }
};

// One product of each tile, compiled for both heights of a tile; scratch for each thread.
class TiledProduct {
 public:
  // `make(rows)` gives the shape for a tile of so many rows.
  template <typename Make>
  TiledProduct(PrimitiveCache& cache, Kernels& kernels, const Tiling& tiling, Make&& make)
      : cache_(cache),
        tiling_(tiling),
        shape_(make(tiling.rows)),
        full_(cache.GetTile(shape_)),
        last_(cache.GetTile(make(tiling.last))) {
    scratch_bytes_ = AlignedBytes(
        static_cast<int64_t>(std::max(full_.scratch.get_size(), last_.scratch.get_size())));
    scratch_ = kernels.Empty({tiling.Parts() * scratch_bytes_}, DType::kU8,
                             MemoryClass::kWorkspace);
  }

  // For a packed B: rearranges it for both heights (one serves both where oneDNN agrees).
  void PackB(const Tensor& b) {
    packed_full_ = cache_.Pack(full_, shape_, b);
    packed_last_ = full_.b == last_.b ? packed_full_ : Pack(last_, tiling_.last, b);
  }

  void Run(int part, int64_t tile, const float* a, const float* b, const float* bias, float* c) {
    const bool is_last = tile + 1 == tiling_.count;
    if (packed_full_.defined()) {
      b = reinterpret_cast<const float*>((is_last ? packed_last_ : packed_full_).raw());
    }
    cache_.RunTile(is_last ? last_ : full_, a, b, bias, c,
                   scratch_.raw() + part * scratch_bytes_);
  }

 private:
  Tensor Pack(const PrimitiveCache::Tile& tile, int64_t rows, const Tensor& b) {
    TileShape shape = shape_;
    shape.m = rows;
    return cache_.Pack(tile, shape, b);
  }

  PrimitiveCache& cache_;
  const Tiling& tiling_;
  TileShape shape_;
  const PrimitiveCache::Tile& full_;
  const PrimitiveCache::Tile& last_;
  Tensor scratch_, packed_full_, packed_last_;
  int64_t scratch_bytes_;
};

// y_tile = x_tile w^T (+ bias), w [out, in], or dx_tile = dy_tile w.
class RowProduct : public TiledProduct {
 public:
  RowProduct(PrimitiveCache& cache, Kernels& kernels, const Tiling& tiling, const Tensor& w,
             Transpose transpose_w, const Tensor& bias, Write write)
      : TiledProduct(cache, kernels, tiling,
                     [&](int64_t rows) {
                       const bool forward = transpose_w == Transpose::kYes;
                       return TileShape{.m = rows,
                                        .n = w.shape()[forward ? 0 : 1],
                                        .k = w.shape()[forward ? 1 : 0],
                                        .transpose_b = transpose_w,
                                        .b = TileShape::B::kPacked,
                                        .bias = bias.defined() ? TileShape::Bias::kRow
                                                               : TileShape::Bias::kNone,
                                        .write = write};
                     }),
        bias_(bias.defined() ? bias.data<float>() : nullptr) {
    PackB(w);
  }

  void Run(int part, int64_t tile, const float* a, float* c) {
    TiledProduct::Run(part, tile, a, nullptr, bias_, c);
  }

 private:
  const float* bias_;
};

// dw[out, in] (+)= dy^T x over all tiles. Each thread adds up its tiles in order: the first thread in
// dw itself, the others in partial results, which are then added in order.
class WeightGradient {
 public:
  WeightGradient(PrimitiveCache& cache, Kernels& kernels, const Tiling& tiling, int64_t out,
                 int64_t in, Write write, const Tensor& dw)
      : write_(write), parts_(tiling.Parts()), elements_(out * in), dw_(dw) {
    const auto shape = [out, in](Write mode) {
      return [out, in, mode](int64_t rows) {
        return TileShape{
            .m = out, .n = in, .k = rows, .transpose_a = Transpose::kYes, .write = mode};
      };
    };
    start_.emplace(cache, kernels, tiling, shape(Write::kOverwrite));
    add_.emplace(cache, kernels, tiling, shape(Write::kAccumulate));
    started_.resize(parts_, 0);
    if (parts_ > 1) {
      partial_ = kernels.Empty({parts_ - 1, AlignedBytes(elements_ * 4) / 4}, DType::kF32,
                               MemoryClass::kWorkspace);
    }
  }

  void Run(int part, int64_t tile, const float* dy, const float* x) {
    const bool fresh = !started_[part] && (part > 0 || write_ == Write::kOverwrite);
    started_[part] = 1;
    (fresh ? *start_ : *add_).Run(part, tile, dy, x, nullptr, Target(part));
  }

  void Finish() {
    ParallelFor(parts_ > 1 ? elements_ : 0, 1 << 14, [&](int64_t begin, int64_t end) {
      float* sum = dw_.data<float>();
      for (int part = 1; part < parts_; ++part) {
        const float* more = Target(part);
        for (int64_t i = begin; i < end; ++i) sum[i] += more[i];
      }
    });
  }

 private:
  float* Target(int part) const {
    return part == 0 ? dw_.data<float>()
                     : partial_.data<float>() + (part - 1) * partial_.shape()[1];
  }

  Write write_;
  int parts_;
  int64_t elements_;
  Tensor dw_, partial_;
  std::optional<TiledProduct> start_, add_;
  std::vector<char> started_;  // one byte a thread, touched by that thread alone
};

// dbias[width] (+)= the column sums of all tiles; the order of sums as for the weights.
class BiasGradient {
 public:
  BiasGradient(const Tiling& tiling, int64_t width, Write write, const Tensor& dbias)
      : width_(width), write_(write), dbias_(dbias), partial_(tiling.Parts() * width, 0.0f) {}

  void Run(int part, const float* dy, int64_t rows) {
    float* sums = partial_.data() + part * width_;
    for (int64_t r = 0; r < rows; ++r) {
      for (int64_t i = 0; i < width_; ++i) sums[i] += dy[r * width_ + i];
    }
  }

  void Finish() {
    float* out = dbias_.data<float>();
    for (int64_t i = 0; i < width_; ++i) {
      float sum = partial_[i];
      for (size_t p = width_; p < partial_.size(); p += width_) sum += partial_[p + i];
      out[i] = write_ == Write::kAccumulate ? out[i] + sum : sum;
    }
  }

 private:
  int64_t width_;
  Write write_;
  Tensor dbias_;
  std::vector<float> partial_;
};

// Calls run(part, tile) for all tiles, in parallel; each part's tiles in order.
template <typename Function>
void ForTiles(const Tiling& tiling, Function&& run) {
  ParallelForParts(tiling.count, 1, [&](int part, int64_t begin, int64_t end) {
    for (int64_t tile = begin; tile < end; ++tile) run(part, tile);
  });
}

char Letter(Transpose transpose) { return transpose == Transpose::kYes ? 'T' : 'N'; }

}  // namespace

void CpuKernels::MatMul(const Tensor& a, Transpose transpose_a, const Tensor& b,
                        Transpose transpose_b, Write write, const Tensor& c) {
  Span span(this);
  const int64_t m = c.shape().rows(), n = c.shape()[-1];
  const int64_t k = transpose_a == Transpose::kYes ? a.shape().rows() : a.shape()[-1];
  CHECK_EQ(a.elements(), m * k) << a.shape() << " " << c.shape();
  CHECK_EQ(b.elements(), n * k) << b.shape() << " " << c.shape();
  CHECK_EQ(dnnl_sgemm(Letter(transpose_a), Letter(transpose_b), m, n, k, 1.0f, a.data<float>(),
                      a.shape()[-1], b.data<float>(), b.shape()[-1],
                      write == Write::kAccumulate ? 1.0f : 0.0f, c.data<float>(), n),
           dnnl_success);
}

void CpuKernels::Linear(const Tensor& x, const Tensor& w, const Tensor& bias,
                        const Tensor& residual, const Tensor& y) {
  Span span(this);
  const int64_t rows = x.shape().rows(), in = w.shape()[1], out = w.shape()[0];
  CHECK_EQ(x.shape()[-1], in);
  CHECK_EQ(y.elements(), rows * out);
  const Tiling tiling(rows);
  RowProduct product(*primitives_, *this, tiling, w, Transpose::kYes, bias,
                     residual.defined() ? Write::kAccumulate : Write::kOverwrite);
  ForTiles(tiling, [&](int part, int64_t tile) {
    const int64_t first = tile * tiling.rows;
    float* y_tile = y.data<float>() + first * out;
    if (residual.defined()) {
      std::copy_n(residual.data<float>() + first * out, tiling.RowsOf(tile) * out, y_tile);
    }
    product.Run(part, tile, x.data<float>() + first * in, y_tile);
  });
}

void CpuKernels::LinearBackward(const Tensor& dy, const Tensor& x, const Tensor& w, Write write,
                                const Tensor& dx, const Tensor& dw, const Tensor& dbias) {
  Span span(this);
  const int64_t in = w.shape()[1], out = w.shape()[0], rows = dy.elements() / out;
  CHECK_EQ(dy.elements(), rows * out);
  const Tiling tiling(rows);
  std::optional<RowProduct> input;
  std::optional<WeightGradient> weight;
  std::optional<BiasGradient> bias;
  if (dx.defined()) {
    input.emplace(*primitives_, *this, tiling, w, Transpose::kNo, Tensor(), Write::kOverwrite);
  }
  if (dw.defined()) weight.emplace(*primitives_, *this, tiling, out, in, write, dw);
  if (dbias.defined()) bias.emplace(tiling, out, write, dbias);
  ForTiles(tiling, [&](int part, int64_t tile) {
    const int64_t first = tile * tiling.rows;
    const float* dy_tile = dy.data<float>() + first * out;
    if (input) input->Run(part, tile, dy_tile, dx.data<float>() + first * in);
    if (weight) weight->Run(part, tile, dy_tile, x.data<float>() + first * in);
    if (bias) bias->Run(part, dy_tile, tiling.RowsOf(tile));
  });
  if (weight) weight->Finish();
  if (bias) bias->Finish();
}

void CpuKernels::GeluNetwork(const Tensor& x, const Tensor& up, const Tensor& up_bias,
                             const Tensor& down, const Tensor& down_bias, const Tensor& residual,
                             const Tensor& pre, const Tensor& y) {
  Span span(this);
  const int64_t rows = x.shape().rows(), width = up.shape()[1], hidden = up.shape()[0];
  CHECK_EQ(pre.elements(), rows * hidden);
  const Tiling tiling(rows);
  RowProduct first_product(*primitives_, *this, tiling, up, Transpose::kYes, up_bias,
                           Write::kOverwrite);
  RowProduct second_product(*primitives_, *this, tiling, down, Transpose::kYes, down_bias,
                            residual.defined() ? Write::kAccumulate : Write::kOverwrite);
  const int64_t tile_elements = tiling.rows * hidden;
  Tensor activated = Workspace({tiling.Parts(), tile_elements});
  ForTiles(tiling, [&](int part, int64_t tile) {
    const int64_t first = tile * tiling.rows, tile_rows = tiling.RowsOf(tile);
    float* pre_tile = pre.data<float>() + first * hidden;
    float* gelu_tile = activated.data<float>() + part * tile_elements;
    float* y_tile = y.data<float>() + first * width;
    first_product.Run(part, tile, x.data<float>() + first * width, pre_tile);
    for (int64_t i = 0; i < tile_rows * hidden; ++i) gelu_tile[i] = cpu::Gelu(pre_tile[i]);
    if (residual.defined()) {
      std::copy_n(residual.data<float>() + first * width, tile_rows * width, y_tile);
    }
    second_product.Run(part, tile, gelu_tile, y_tile);
  });
}

void CpuKernels::GeluNetworkBackward(const Tensor& x, const Tensor& pre, const Tensor& up,
                                     const Tensor& down, const Tensor& dy, Write write,
                                     const GeluNetworkGradients& gradients) {
  Span span(this);
  const int64_t rows = x.shape().rows(), width = up.shape()[1], hidden = up.shape()[0];
  const Tiling tiling(rows);
  RowProduct to_hidden(*primitives_, *this, tiling, down, Transpose::kNo, Tensor(),
                       Write::kOverwrite);
  std::optional<RowProduct> to_input;
  std::optional<WeightGradient> up_gradient, down_gradient;
  std::optional<BiasGradient> up_bias, down_bias;
  if (gradients.x.defined()) {
    to_input.emplace(*primitives_, *this, tiling, up, Transpose::kNo, Tensor(),
                     Write::kOverwrite);
  }
  if (gradients.up.defined()) {
    up_gradient.emplace(*primitives_, *this, tiling, hidden, width, write, gradients.up);
  }
  if (gradients.down.defined()) {
    down_gradient.emplace(*primitives_, *this, tiling, width, hidden, write, gradients.down);
  }
  if (gradients.up_bias.defined()) up_bias.emplace(tiling, hidden, write, gradients.up_bias);
  if (gradients.down_bias.defined()) down_bias.emplace(tiling, width, write, gradients.down_bias);

  const int64_t tile_elements = tiling.rows * hidden;
  Tensor tiles = Workspace({tiling.Parts(), 2 * tile_elements});
  ForTiles(tiling, [&](int part, int64_t tile) {
    const int64_t first = tile * tiling.rows, tile_rows = tiling.RowsOf(tile);
    const float* pre_tile = pre.data<float>() + first * hidden;
    const float* x_tile = x.data<float>() + first * width;
    const float* dy_tile = dy.data<float>() + first * width;
    float* gelu_tile = tiles.data<float>() + part * 2 * tile_elements;
    float* dpre_tile = gelu_tile + tile_elements;
    to_hidden.Run(part, tile, dy_tile, dpre_tile);
    for (int64_t i = 0; i < tile_rows * hidden; ++i) {
      const auto [value, slope] = cpu::GeluWithDerivative(pre_tile[i]);
      gelu_tile[i] = value;
      dpre_tile[i] *= slope;
    }
    if (to_input) to_input->Run(part, tile, dpre_tile, gradients.x.data<float>() + first * width);
    if (up_gradient) up_gradient->Run(part, tile, dpre_tile, x_tile);
    if (down_gradient) down_gradient->Run(part, tile, dy_tile, gelu_tile);
    if (up_bias) up_bias->Run(part, dpre_tile, tile_rows);
    if (down_bias) down_bias->Run(part, dy_tile, tile_rows);
  });
  if (up_gradient) up_gradient->Finish();
  if (down_gradient) down_gradient->Finish();
  if (up_bias) up_bias->Finish();
  if (down_bias) down_bias->Finish();
}

}  // namespace lockstep
