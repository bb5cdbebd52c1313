// Matrix products on oneDNN. Linear layers are cut by rows into tiles of one thread each, so that
// what comes before and after the product (bias, residual, GELU) meets the tile in cache.

#include <algorithm>

#include "core/base/parallel.h"
#include "core/kernels/cpu/cpu_kernels.h"
#include "core/kernels/cpu/primitive_cache.h"
#include "core/kernels/cpu/span.h"
#include "core/kernels/cpu/vector_math.h"
#include "glog/logging.h"
#include "dnnl.h"    // dnnl_sgemm
#include "dnnl.hpp"  // matmul

namespace lockstep {
namespace {

// Rows of a tile: enough to hide the packing of the weights that each product repeats, few enough
// that the tile is still in the second-level cache when the epilogue reads it.
constexpr int64_t kTileRows = 256;

// Below this many multiply-adds a fork costs more than it saves.
constexpr int64_t kParallelMacs = 1 << 17;

char Letter(Transpose transpose) { return transpose == Transpose::kYes ? 'T' : 'N'; }

void Gemm(char transpose_a, char transpose_b, int64_t m, int64_t n, int64_t k, const float* a,
          int64_t lda, const float* b, int64_t ldb, float beta, float* c, int64_t ldc) {
  CHECK_EQ(dnnl_sgemm(transpose_a, transpose_b, m, n, k, 1.0f, a, lda, b, ldb, beta, c, ldc),
           dnnl_success);
}

// Calls tile(begin, end) for ranges of rows, in parallel; inside, products run on one thread.
template <typename Function>
void ForTiles(int64_t rows, int64_t macs_per_row, Function&& tile) {
  const int64_t grain = std::max<int64_t>(1, kParallelMacs / std::max<int64_t>(1, macs_per_row));
  ParallelFor(rows, grain, [&](int64_t begin, int64_t end) {
    const int64_t tiles = (end - begin + kTileRows - 1) / kTileRows;
    for (int64_t i = 0; i < tiles; ++i) {
      tile(begin + (end - begin) * i / tiles, begin + (end - begin) * (i + 1) / tiles);
    }
  });
}

// y[rows, width] = bias + residual, either of which may be null.
void StartTile(const float* bias, const float* residual, int64_t rows, int64_t width, float* y) {
  for (int64_t r = 0; r < rows; ++r) {
    float* out = y + r * width;
    if (bias != nullptr && residual != nullptr) {
      const float* in = residual + r * width;
      for (int64_t i = 0; i < width; ++i) out[i] = in[i] + bias[i];
    } else {
      std::copy_n(bias != nullptr ? bias : residual + r * width, width, out);
    }
  }
}

// out[width] (+)= the sums of the columns of dy[rows, width]: each thread sums a range of rows, the
// ranges are added in order.
void ColumnSums(const float* dy, int64_t rows, int64_t width, Write write, float* partial,
                float* out) {
  const int64_t grain = std::max<int64_t>(1, (1 << 15) / width);
  const int parts = ParallelParts(rows, grain);
  ParallelForParts(rows, grain, [&](int part, int64_t begin, int64_t end) {
    float* sums = partial + part * width;
    std::fill_n(sums, width, 0.0f);
    for (int64_t r = begin; r < end; ++r) {
      const float* row = dy + r * width;
      for (int64_t i = 0; i < width; ++i) sums[i] += row[i];
    }
  });
  for (int64_t i = 0; i < width; ++i) {
    float sum = partial[i];
    for (int p = 1; p < parts; ++p) sum += partial[p * width + i];
    out[i] = write == Write::kAccumulate ? out[i] + sum : sum;
  }
}

}  // namespace

void CpuKernels::MatMul(const Tensor& a, Transpose transpose_a, const Tensor& b,
                        Transpose transpose_b, Write write, const Tensor& c) {
  Span span(this);
  const int64_t m = c.shape().rows(), n = c.shape()[-1];
  const int64_t k = transpose_a == Transpose::kYes ? a.shape().rows() : a.shape()[-1];
  CHECK_EQ(a.elements(), m * k) << a.shape() << " " << c.shape();
  CHECK_EQ(b.elements(), n * k) << b.shape() << " " << c.shape();
  Gemm(Letter(transpose_a), Letter(transpose_b), m, n, k, a.data<float>(), a.shape()[-1],
       b.data<float>(), b.shape()[-1], write == Write::kAccumulate ? 1.0f : 0.0f, c.data<float>(),
       n);
}

void CpuKernels::Linear(const Tensor& x, const Tensor& w, const Tensor& bias,
                        const Tensor& residual, const Tensor& y) {
  Span span(this);
  const int64_t rows = x.shape().rows(), in = w.shape()[1], out = w.shape()[0];
  CHECK_EQ(x.shape()[-1], in);
  CHECK_EQ(y.elements(), rows * out);
  const float* bias_data = bias.defined() ? bias.data<float>() : nullptr;
  ForTiles(rows, in * out, [&](int64_t begin, int64_t end) {
    float* y_tile = y.data<float>() + begin * out;
    const float* start = residual.defined() ? residual.data<float>() + begin * out : nullptr;
    const bool started = start != nullptr || bias_data != nullptr;
    if (started) StartTile(bias_data, start, end - begin, out, y_tile);
    Gemm('N', 'T', end - begin, out, in, x.data<float>() + begin * in, in, w.data<float>(), in,
         started ? 1.0f : 0.0f, y_tile, out);
  });
}

void CpuKernels::LinearGelu(const Tensor& x, const Tensor& w, const Tensor& bias, const Tensor& pre,
                            const Tensor& y) {
  Span span(this);
  const int64_t rows = x.shape().rows(), in = w.shape()[1], out = w.shape()[0];
  ForTiles(rows, in * out, [&](int64_t begin, int64_t end) {
    float* pre_tile = pre.data<float>() + begin * out;
    float* y_tile = y.data<float>() + begin * out;
    StartTile(bias.data<float>(), nullptr, end - begin, out, pre_tile);
    Gemm('N', 'T', end - begin, out, in, x.data<float>() + begin * in, in, w.data<float>(), in,
         1.0f, pre_tile, out);
    for (int64_t i = 0; i < (end - begin) * out; ++i) y_tile[i] = cpu::Gelu(pre_tile[i]);
  });
}

void CpuKernels::LinearBackwardInput(const Tensor& dy, const Tensor& w, const Tensor& pre,
                                     const Tensor& dx) {
  Span span(this);
  const int64_t rows = dx.shape().rows(), in = w.shape()[1], out = w.shape()[0];
  CHECK_EQ(dy.elements(), rows * out);
  ForTiles(rows, in * out, [&](int64_t begin, int64_t end) {
    float* dx_tile = dx.data<float>() + begin * in;
    Gemm('N', 'N', end - begin, in, out, dy.data<float>() + begin * out, out, w.data<float>(), in,
         0.0f, dx_tile, in);
    if (!pre.defined()) return;
    const float* pre_tile = pre.data<float>() + begin * in;
    for (int64_t i = 0; i < (end - begin) * in; ++i) dx_tile[i] *= cpu::GeluDerivative(pre_tile[i]);
  });
}

void CpuKernels::LinearBackwardWeight(const Tensor& dy, const Tensor& x, Write write,
                                      const Tensor& dw, const Tensor& dbias) {
  Span span(this);
  const int64_t rows = x.shape().rows(), in = x.shape()[-1], out = dy.shape()[-1];
  CHECK_EQ(dw.elements(), in * out);
  primitives_->MatMulTransposedA(dy.data<float>(), x.data<float>(), out, in, rows, write,
                                 dw.data<float>());
  if (dbias.defined()) {
    Tensor partial = Workspace({MaxThreads(), out});
    ColumnSums(dy.data<float>(), rows, out, write, partial.data<float>(), dbias.data<float>());
  }
}

}  // namespace lockstep
