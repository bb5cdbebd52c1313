// Causal self-attention in tiles of query rows: the probabilities of a tile live in cache and are
// made again in backward from the stored log-sum-exp of each row, so nothing of size time x time is
// ever in memory. Keys behind a tile's last query are never touched, which halves the work.

#include <algorithm>
#include <cmath>
#include <limits>

#include "core/base/parallel.h"
#include "core/base/philox.h"
#include "core/kernels/cpu/cpu_kernels.h"
#include "core/kernels/cpu/row_tiles.h"  // Scratch
#include "core/kernels/cpu/span.h"
#include "core/kernels/cpu/tile_gemm.h"
#include "core/kernels/cpu/vector_math.h"
#include "glog/logging.h"

namespace lockstep {
namespace {

// Query rows of a tile, and keys of a block: one panel of a product. Smaller ones would skip more
// of what causality forbids, but lose more on the way in and out of each product.
constexpr int64_t kTile = 48;
// Rows of a tile are padded to whole vectors: loops over them have no tails.
constexpr int64_t kVector = 16;

int64_t Padded(int64_t count) { return (count + kVector - 1) & ~(kVector - 1); }

// One (batch, head) pair, and the scratch of the thread that computes it.
struct Head {
  const Attention& attention;
  int64_t batch, head, time, row;  // row: elements between two time steps of qkv
  float scale;

  int64_t width() const { return attention.head_width; }
  int64_t y_row() const { return attention.heads * attention.head_width; }
  // Offsets into qkv and y of this head's first time step.
  int64_t query() const { return batch * time * row + head * width(); }
  int64_t key() const { return query() + y_row(); }
  int64_t value() const { return query() + 2 * y_row(); }
  int64_t output() const { return batch * time * y_row() + head * width(); }
  int64_t sums() const { return (batch * attention.heads + head) * time; }
};

// What a thread needs besides its operands. Sizes in floats, places as Scratch gives them.
struct Pieces {
  Pieces(const Attention& attention, int64_t time, bool backward)
      : tile_row(Padded(time) + kVector),
        operand(Padded(time) * Padded(attention.head_width)),
        keys(scratch.Add(operand)),
        values(scratch.Add(operand)),
        tile(scratch.Add(kTile * tile_row)),
        factors(scratch.Add(Padded(time))) {
    if (!backward) return;
    key_steps = scratch.Add(operand);
    dtile = scratch.Add(kTile * tile_row);
    left = scratch.Add(cpu::PackedLeftSize(time, kTile));
    right = scratch.Add(cpu::PackedRightSize(kTile, attention.head_width));
  }

  cpu::Scratch scratch;
  // Between two rows of a tile; no power of two, lest a column's elements share few sets of a
  // cache.
  int64_t tile_row;
  int64_t operand, keys, values, tile, factors;
  int64_t key_steps = 0, dtile = 0, left = 0, right = 0;
};

// Keys or values [time, width] packed for Against: transposed, kTile of them a block.
void PackBlocks(const Head& head, const float* from, float* packed) {
  for (int64_t first = 0; first < head.time; first += kTile) {
    cpu::PackRight({from + first * head.row, head.row, Transpose::kYes}, head.width(),
                   std::min(kTile, head.time - first), packed + first * head.width());
  }
}

// tile[rows, seen] = a[rows, width] blocks^T
void Against(const Head& head, const float* a, int64_t a_row, int64_t rows, const float* blocks,
             int64_t seen, float* tile, int64_t tile_row) {
  for (int64_t first = 0; first < seen; first += kTile) {
    cpu::Multiply({.m = rows,
                   .n = std::min(kTile, seen - first),
                   .k = head.width(),
                   .a = a,
                   .a_stride = a_row,
                   .packed_b = blocks + first * head.width(),
                   .c = tile + first,
                   .c_stride = tile_row});
  }
}

// out[rows, width] = tile[rows, seen] times the first `seen` of `steps`, packed by PackRight.
void Weigh(const Head& head, const float* tile, int64_t tile_row, int64_t rows, int64_t seen,
           const float* steps, float* out, int64_t out_row) {
  cpu::Multiply({.m = rows,
                 .n = head.width(),
                 .k = seen,
                 .a = tile,
                 .a_stride = tile_row,
                 .packed_b = steps,
                 .packed_k = head.time,
                 .c = out,
                 .c_stride = out_row});
}

// For row i of the unsharded attention matrix: 1 / (1 - p) where a probability is kept, else 0.
void DropoutFactors(const Head& head, int64_t i, int64_t count, float* factors) {
  const Dropout& dropout = head.attention.dropout;
  const int64_t first =
      ((head.batch * head.attention.total_heads + head.attention.first_head + head.head) *
           head.time +
       i) *
      head.time;
  Philox(dropout.key)
      .FillUniform({factors, static_cast<size_t>(count)}, first, dropout.counter, 0.0f, 1.0f);
  const float scale = 1.0f / (1.0f - dropout.probability);
  for (int64_t j = 0; j < count; ++j) {
    factors[j] = factors[j] >= dropout.probability ? scale : 0.0f;
  }
}

// Brings a row of `width` elements into the second-level cache. A head's rows lie far apart, which
// no processor foresees: while one head is computed, the rows of the next are fetched.
void Fetch(const float* row, int64_t width) {
  for (int64_t i = 0; i < width; i += 16) __builtin_prefetch(row + i, 0, 2);
}

// The largest and the sum of whole vectors of elements, in kVector chains side by side.
float Largest(const float* x, int64_t padded) {
  float lanes[kVector];
  std::copy_n(x, kVector, lanes);
  for (int64_t j = kVector; j < padded; j += kVector) {
    for (int64_t l = 0; l < kVector; ++l) lanes[l] = x[j + l] > lanes[l] ? x[j + l] : lanes[l];
  }
  for (int64_t half = kVector / 2; half > 0; half /= 2) {
    for (int64_t l = 0; l < half; ++l) {
      lanes[l] = lanes[l + half] > lanes[l] ? lanes[l + half] : lanes[l];
    }
  }
  return lanes[0];
}

float Sum(const float* x, int64_t padded) {
  float lanes[kVector] = {};
  for (int64_t j = 0; j < padded; j += kVector) {
    for (int64_t l = 0; l < kVector; ++l) lanes[l] += x[j + l];
  }
  for (int64_t half = kVector / 2; half > 0; half /= 2) {
    for (int64_t l = 0; l < half; ++l) lanes[l] += lanes[l + half];
  }
  return lanes[0];
}

// Softmax of `scale` times one row's first `count` logits in place, the rest up to `seen` zeroed;
// returns the log-sum-exp.
float SoftmaxRow(float* row, int64_t count, int64_t seen, float scale) {
  const int64_t padded = Padded(count);
  std::fill(row + count, row + padded, std::numeric_limits<float>::lowest());
  const float largest = Largest(row, padded);
  for (int64_t j = 0; j < padded; ++j) row[j] = cpu::Exp((row[j] - largest) * scale);
  // The padding adds e^-87 at most to a sum of 1 at least: nothing.
  const float sum = Sum(row, padded);
  const float inverse = 1.0f / sum;
  for (int64_t j = 0; j < padded; ++j) row[j] *= inverse;
  std::fill(row + count, row + std::max(seen, padded), 0.0f);
  return largest * scale + std::log(sum);
}

// From one row's first `count` logits p and products d of dy with the values, the probabilities (as
// dropout left them) and the gradients of the unscaled logits; the rest up to `seen` zeroed.
// product = sum_j p_j d_j.
void SoftmaxRowBackward(float* p, float* d, int64_t count, int64_t seen, float scale,
                        float log_sum_exp, float product, const float* factors) {
  const int64_t padded = Padded(count);
  if (factors != nullptr) {
    for (int64_t j = 0; j < padded; ++j) {
      const float probability = cpu::Exp(std::fma(p[j], scale, -log_sum_exp));
      d[j] = probability * (d[j] * factors[j] - product) * scale;
      p[j] = probability * factors[j];
    }
  } else {
    for (int64_t j = 0; j < padded; ++j) {
      p[j] = cpu::Exp(std::fma(p[j], scale, -log_sum_exp));
      d[j] = p[j] * (d[j] - product) * scale;
    }
  }
  std::fill(p + count, p + std::max(seen, padded), 0.0f);
  std::fill(d + count, d + std::max(seen, padded), 0.0f);
}

void ForwardHead(const Head& head, const Head& next, const Pieces& pieces, int part,
                 const float* qkv, float* y, float* log_sum_exp) {
  const auto at = [&](int64_t piece) { return pieces.scratch.At(part, piece); };
  float* tile = at(pieces.tile);
  float* factors = at(pieces.factors);
  PackBlocks(head, qkv + head.key(), at(pieces.keys));
  cpu::PackRight({qkv + head.value(), head.row}, head.time, head.width(), at(pieces.values));
  for (int64_t first = 0; first < head.time; first += kTile) {
    const int64_t rows = std::min(kTile, head.time - first), seen = first + rows;
    Against(head, qkv + head.query() + first * head.row, head.row, rows, at(pieces.keys), seen,
            tile, pieces.tile_row);
    for (int64_t r = 0; r < rows; ++r) {
      float* row = tile + r * pieces.tile_row;
      const int64_t i = first + r, count = i + 1;
      for (int64_t offset : {next.query(), next.key(), next.value()}) {
        Fetch(qkv + offset + i * head.row, head.width());
      }
      log_sum_exp[head.sums() + i] = SoftmaxRow(row, count, seen, head.scale);
      if (head.attention.dropout.probability > 0) {
        DropoutFactors(head, i, count, factors);
        for (int64_t j = 0; j < count; ++j) row[j] *= factors[j];
      }
    }
    Weigh(head, tile, pieces.tile_row, rows, seen, at(pieces.values),
          y + head.output() + first * head.y_row(), head.y_row());
  }
}

void BackwardHead(const Head& head, const Head& next, const Pieces& pieces, int part,
                  const float* qkv, const float* y, const float* log_sum_exp, const float* dy,
                  float* dqkv) {
  const auto at = [&](int64_t piece) { return pieces.scratch.At(part, piece); };
  const int64_t width = head.width(), tile_row = pieces.tile_row;
  float* tile = at(pieces.tile);
  float* dtile = at(pieces.dtile);
  float* factors = head.attention.dropout.probability > 0 ? at(pieces.factors) : nullptr;
  PackBlocks(head, qkv + head.key(), at(pieces.keys));
  PackBlocks(head, qkv + head.value(), at(pieces.values));
  cpu::PackRight({qkv + head.key(), head.row}, head.time, width, at(pieces.key_steps));
  // Tiles from the last to the first: the last sees every key, and overwrites what the others add
  // to.
  for (int64_t first = (head.time - 1) / kTile * kTile; first >= 0; first -= kTile) {
    const int64_t rows = std::min(kTile, head.time - first), seen = first + rows;
    const float* queries = qkv + head.query() + first * head.row;
    const float* dy_tile = dy + head.output() + first * head.y_row();
    const float* y_tile = y + head.output() + first * head.y_row();
    Against(head, queries, head.row, rows, at(pieces.keys), seen, tile, tile_row);
    Against(head, dy_tile, head.y_row(), rows, at(pieces.values), seen, dtile, tile_row);
    for (int64_t r = 0; r < rows; ++r) {
      const int64_t i = first + r, count = i + 1;
      for (int64_t offset : {next.query(), next.key(), next.value()}) {
        Fetch(qkv + offset + i * head.row, width);
        Fetch(dqkv + offset + i * head.row, width);
      }
      Fetch(y + next.output() + i * head.y_row(), width);
      Fetch(dy + next.output() + i * head.y_row(), width);
      // sum_j p_j d_j equals the product of y and dy along the row (FlashAttention, section B.4).
      float product = 0;
#pragma omp simd reduction(+ : product)
      for (int64_t c = 0; c < width; ++c) {
        product += dy_tile[r * head.y_row() + c] * y_tile[r * head.y_row() + c];
      }
      if (factors != nullptr) DropoutFactors(head, i, count, factors);
      SoftmaxRowBackward(tile + r * tile_row, dtile + r * tile_row, count, seen, head.scale,
                         log_sum_exp[head.sums() + i], product, factors);
    }
    // to[seen, width] (+)= from[rows, seen]^T by[rows, width]
    const auto add_transposed = [&](const float* from, const float* by, int64_t by_row, float* to) {
      cpu::PackLeftTransposed(from, tile_row, seen, rows, at(pieces.left));
      cpu::PackRight({by, by_row}, rows, width, at(pieces.right));
      cpu::Multiply({.m = seen,
                     .n = width,
                     .k = rows,
                     .a = at(pieces.left),
                     .packed_b = at(pieces.right),
                     .c = to,
                     .c_stride = head.row,
                     .addend = seen == head.time ? nullptr : to,
                     .addend_stride = head.row});
    };
    add_transposed(tile, dy_tile, head.y_row(), dqkv + head.value());
    add_transposed(dtile, queries, head.row, dqkv + head.key());
    Weigh(head, dtile, tile_row, rows, seen, at(pieces.key_steps),
          dqkv + head.query() + first * head.row, head.row);
  }
}

// Calls run(head, next, part) for all (batch, head) pairs, in parallel; `next` is the pair that the
// thread computes after it, or the same where it is the last.
template <typename Function>
void ForHeads(const Attention& attention, const Tensor& qkv, Function&& run) {
  const int64_t time = qkv.shape()[1], row = qkv.shape()[2];
  CHECK_EQ(row, 3 * attention.heads * attention.head_width) << qkv.shape();
  const float scale = 1.0f / std::sqrt(static_cast<float>(attention.head_width));
  const auto head = [&](int64_t i) {
    return Head{attention, i / attention.heads, i % attention.heads, time, row, scale};
  };
  ParallelForParts(qkv.shape()[0] * attention.heads, 1, [&](int part, int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      run(head(i), head(std::min(i + 1, end - 1)), part);
    }
  });
}

}  // namespace

void CpuKernels::AttentionForward(const Attention& attention, const Tensor& qkv, const Tensor& y,
                                  const Tensor& log_sum_exp) {
  Span span(this);
  Pieces pieces(attention, qkv.shape()[1], /*backward=*/false);
  pieces.scratch.Allocate(*this, MaxThreads());
  ForHeads(attention, qkv, [&](const Head& head, const Head& next, int part) {
    ForwardHead(head, next, pieces, part, qkv.data<float>(), y.data<float>(),
                log_sum_exp.data<float>());
  });
}

void CpuKernels::AttentionBackward(const Attention& attention, const Tensor& qkv, const Tensor& y,
                                   const Tensor& log_sum_exp, const Tensor& dy,
                                   const Tensor& dqkv) {
  Span span(this);
  Pieces pieces(attention, qkv.shape()[1], /*backward=*/true);
  pieces.scratch.Allocate(*this, MaxThreads());
  ForHeads(attention, qkv, [&](const Head& head, const Head& next, int part) {
    BackwardHead(head, next, pieces, part, qkv.data<float>(), y.data<float>(),
                 log_sum_exp.data<float>(), dy.data<float>(), dqkv.data<float>());
  });
}

}  // namespace lockstep
