// Causal self-attention in tiles of query rows: the probabilities of a tile live in cache and are
// made again in backward from the stored log-sum-exp of each row, so nothing of size time x time is
// ever in memory. Keys behind a tile's last query are never touched, which halves the work.

#include <algorithm>
#include <cmath>
#include <limits>

#include "core/base/parallel.h"
#include "core/base/philox.h"
#include "core/kernels/cpu/cpu_kernels.h"
#include "core/kernels/cpu/float_elements.h"
#include "core/kernels/cpu/row_sums.h"
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
constexpr int64_t kVector = cpu::kLanes;

int64_t Padded(int64_t count) { return (count + kVector - 1) & ~(kVector - 1); }

// One (batch, head) pair: where its rows lie in the tensors of all heads.
struct Head {
  const Attention& attention;
  int64_t batch, head, time, row;  // row: elements between two time steps of qkv
  float scale;
  InstructionSet instructions;

  int64_t width() const { return attention.head_width; }
  int64_t y_row() const { return attention.heads * attention.head_width; }
  // Offsets into qkv and y of this head's first time step.
  int64_t query() const { return batch * time * row + head * width(); }
  int64_t key() const { return query() + y_row(); }
  int64_t value() const { return query() + 2 * y_row(); }
  int64_t output() const { return batch * time * y_row() + head * width(); }
  int64_t sums() const { return (batch * attention.heads + head) * time; }
};

// The rows of one head, [time, width], as floats: where they lie in an fp32 tensor, else in a copy.
struct Rows {
  float* first;
  int64_t stride;  // between two time steps

  float* At(int64_t time) const { return first + time * stride; }
};

// Brings a row of `width` elements into the second-level cache. A head's rows lie far apart, which
// no processor foresees: while one head is computed, the rows of the next are fetched.
void Fetch(const Tensor& tensor, int64_t offset, int64_t width) {
  const int64_t size = SizeOf(tensor.dtype());
  const std::byte* row = tensor.raw() + offset * size;
  for (int64_t byte = 0; byte < width * size; byte += 64) __builtin_prefetch(row + byte, 0, 2);
}

// What a thread needs besides its operands. Sizes in floats, places as Scratch gives them.
struct Buffers {
  Buffers(const Attention& attention, int64_t time, DType dtype, bool backward)
      : tile_row(Padded(time) + kVector),
        operand(Padded(time) * Padded(attention.head_width)),
        keys(scratch.Add(operand)),
        values(scratch.Add(operand)),
        tile(scratch.Add(kTile * tile_row)),
        factors(scratch.Add(Padded(time))) {
    const int kinds = dtype == DType::kF32 ? 0 : backward ? kBackwardCopies : kForwardCopies;
    for (int i = 0; i < kinds; ++i) copies[i] = scratch.Add(time * attention.head_width);
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
  // Copies of the head's rows in fp32, where the tensors have 16 bits.
  static constexpr int kForwardCopies = 4, kBackwardCopies = 8;
  int64_t copies[kBackwardCopies] = {};
};

// A head's rows of `tensor`, whose rows of all heads are `row` elements apart, from element
// `offset` on. Those of a 16-bit tensor are in the copy `copy`: Load converts them, and Store
// rounds what was written there.
class HeadRows {
 public:
  HeadRows(const Head& head, const Buffers& buffers, int chunk, const Tensor& tensor,
           int64_t offset, int64_t row, int copy)
      : tensor_(tensor),
        time_(head.time),
        width_(head.width()),
        offset_(offset),
        row_(row),
        rows_(tensor.dtype() == DType::kF32
                  ? Rows{tensor.data<float>() + offset, row}
                  : Rows{buffers.scratch.At(chunk, buffers.copies[copy]), head.width()}) {}

  Rows Load() const {
    for (int64_t t = 0; IsCopy() && t < time_; ++t) {
      cpu::LoadFloats(tensor_, offset_ + t * row_, width_, rows_.At(t));
    }
    return rows_;
  }
  Rows rows() const { return rows_; }
  void Store() const {
    for (int64_t t = 0; IsCopy() && t < time_; ++t) {
      cpu::StoreFloats(rows_.At(t), offset_ + t * row_, width_, tensor_);
    }
  }

 private:
  bool IsCopy() const { return tensor_.dtype() != DType::kF32; }

  const Tensor& tensor_;
  int64_t time_, width_, offset_, row_;
  Rows rows_;
};

// Keys or values [time, width] packed for Against: transposed, kTile of them a block.
void PackBlocks(const Head& head, const Rows& from, float* packed) {
  for (int64_t first = 0; first < head.time; first += kTile) {
    cpu::PackRight({from.At(first), from.stride, Transpose::kYes}, head.width(),
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
                   .c_stride = tile_row},
                  head.instructions);
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
                 .c_stride = out_row},
                head.instructions);
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

// Softmax of `scale` times one row's first `count` logits in place, the rest up to `seen` zeroed;
// returns the log-sum-exp.
float SoftmaxRow(float* row, int64_t count, int64_t seen, float scale) {
  const int64_t padded = Padded(count);
  std::fill(row + count, row + padded, std::numeric_limits<float>::lowest());
  const float largest = cpu::LargestOfRow(row, padded);
  for (int64_t j = 0; j < padded; ++j) row[j] = cpu::Exp((row[j] - largest) * scale);
  // The padding adds e^-87 at most to a sum of 1 at least: nothing.
  const float sum = cpu::SumOfRow(row, padded);
  const float inverse = 1.0f / sum;
  for (int64_t j = 0; j < padded; ++j) row[j] *= inverse;
  std::fill(row + count, row + std::max(seen, padded), 0.0f);
  return largest * scale + cpu::Log(sum);
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

void ForwardHead(const Head& head, const Head& next, const Buffers& buffers, int chunk,
                 const Tensor& qkv, const Tensor& y, const Tensor& log_sum_exp) {
  const auto at = [&](int64_t buffer) { return buffers.scratch.At(chunk, buffer); };
  const auto load = [&](int64_t offset, int copy) {
    return HeadRows(head, buffers, chunk, qkv, offset, head.row, copy).Load();
  };
  const Rows queries = load(head.query(), 0), keys = load(head.key(), 1),
             values = load(head.value(), 2);
  const HeadRows result(head, buffers, chunk, y, head.output(), head.y_row(), 3);
  float* tile = at(buffers.tile);
  float* factors = at(buffers.factors);
  PackBlocks(head, keys, at(buffers.keys));
  cpu::PackRight({values.first, values.stride}, head.time, head.width(), at(buffers.values));
  for (int64_t first = 0; first < head.time; first += kTile) {
    const int64_t rows = std::min(kTile, head.time - first), seen = first + rows;
    Against(head, queries.At(first), queries.stride, rows, at(buffers.keys), seen, tile,
            buffers.tile_row);
    for (int64_t r = 0; r < rows; ++r) {
      float* row = tile + r * buffers.tile_row;
      const int64_t i = first + r, count = i + 1;
      for (int64_t offset : {next.query(), next.key(), next.value()}) {
        Fetch(qkv, offset + i * head.row, head.width());
      }
      log_sum_exp.data<float>()[head.sums() + i] = SoftmaxRow(row, count, seen, head.scale);
      if (head.attention.dropout.probability > 0) {
        DropoutFactors(head, i, count, factors);
        for (int64_t j = 0; j < count; ++j) row[j] *= factors[j];
      }
    }
    Weigh(head, tile, buffers.tile_row, rows, seen, at(buffers.values), result.rows().At(first),
          result.rows().stride);
  }
  result.Store();
}

void BackwardHead(const Head& head, const Head& next, const Buffers& buffers, int chunk,
                  const Tensor& qkv, const Tensor& y, const Tensor& log_sum_exp, const Tensor& dy,
                  const Tensor& dqkv) {
  const auto at = [&](int64_t buffer) { return buffers.scratch.At(chunk, buffer); };
  const int64_t width = head.width(), tile_row = buffers.tile_row;
  const auto rows_of = [&](const Tensor& tensor, int64_t offset, int64_t row, int copy) {
    return HeadRows(head, buffers, chunk, tensor, offset, row, copy);
  };
  const Rows queries = rows_of(qkv, head.query(), head.row, 0).Load();
  const Rows keys = rows_of(qkv, head.key(), head.row, 1).Load();
  const Rows values = rows_of(qkv, head.value(), head.row, 2).Load();
  const Rows outputs = rows_of(y, head.output(), head.y_row(), 3).Load();
  const Rows doutputs = rows_of(dy, head.output(), head.y_row(), 4).Load();
  const HeadRows dqueries = rows_of(dqkv, head.query(), head.row, 5);
  const HeadRows dkeys = rows_of(dqkv, head.key(), head.row, 6);
  const HeadRows dvalues = rows_of(dqkv, head.value(), head.row, 7);
  float* tile = at(buffers.tile);
  float* dtile = at(buffers.dtile);
  float* factors = head.attention.dropout.probability > 0 ? at(buffers.factors) : nullptr;
  PackBlocks(head, keys, at(buffers.keys));
  PackBlocks(head, values, at(buffers.values));
  cpu::PackRight({keys.first, keys.stride}, head.time, width, at(buffers.key_steps));
  // Tiles from the last to the first: the last sees every key, and overwrites what the others add
  // to.
  for (int64_t first = (head.time - 1) / kTile * kTile; first >= 0; first -= kTile) {
    const int64_t rows = std::min(kTile, head.time - first), seen = first + rows;
    Against(head, queries.At(first), queries.stride, rows, at(buffers.keys), seen, tile, tile_row);
    Against(head, doutputs.At(first), doutputs.stride, rows, at(buffers.values), seen, dtile,
            tile_row);
    for (int64_t r = 0; r < rows; ++r) {
      const int64_t i = first + r, count = i + 1;
      for (int64_t offset : {next.query(), next.key(), next.value()}) {
        Fetch(qkv, offset + i * head.row, width);
        Fetch(dqkv, offset + i * head.row, width);
      }
      Fetch(y, next.output() + i * head.y_row(), width);
      Fetch(dy, next.output() + i * head.y_row(), width);
      // sum_j p_j d_j equals the product of y and dy along the row (FlashAttention, section B.4).
      const float* y_row = outputs.At(i);
      const float* dy_row = doutputs.At(i);
      const float product = cpu::SumRow(width, [=](int64_t c) { return dy_row[c] * y_row[c]; });
      if (factors != nullptr) DropoutFactors(head, i, count, factors);
      SoftmaxRowBackward(tile + r * tile_row, dtile + r * tile_row, count, seen, head.scale,
                         log_sum_exp.data<float>()[head.sums() + i], product, factors);
    }
    // to[seen, width] (+)= from[rows, seen]^T by[rows, width]
    const auto add_transposed = [&](const float* from, const Rows& by, const Rows& to) {
      cpu::PackLeftTransposed(from, tile_row, seen, rows, at(buffers.left));
      cpu::PackRight({by.At(first), by.stride}, rows, width, at(buffers.right));
      const float* const held = to.first;
      cpu::Multiply({.m = seen,
                     .n = width,
                     .k = rows,
                     .a = at(buffers.left),
                     .packed_b = at(buffers.right),
                     .c = to.first,
                     .c_stride = to.stride,
                     .addends = {&held, seen == head.time ? size_t{0} : size_t{1}},
                     .addend_stride = to.stride},
                    head.instructions);
    };
    add_transposed(tile, doutputs, dvalues.rows());
    add_transposed(dtile, queries, dkeys.rows());
    Weigh(head, dtile, tile_row, rows, seen, at(buffers.key_steps), dqueries.rows().At(first),
          dqueries.rows().stride);
  }
  for (const HeadRows* result : {&dqueries, &dkeys, &dvalues}) result->Store();
}

// Calls run(head, next, chunk) for all (batch, head) pairs, in parallel; `next` is the pair that
// the thread computes after it, or the same where it is the last.
template <typename Function>
void ForHeads(const Attention& attention, const Tensor& qkv, InstructionSet instructions,
              Function&& run) {
  const int64_t time = qkv.shape()[1], row = qkv.shape()[2];
  CHECK_EQ(row, 3 * attention.heads * attention.head_width) << qkv.shape();
  const float scale = 1.0f / std::sqrt(static_cast<float>(attention.head_width));
  const auto head = [&](int64_t i) {
    return Head{attention, i / attention.heads, i % attention.heads, time, row,
                scale,     instructions};
  };
  ParallelForChunks(qkv.shape()[0] * attention.heads, 1,
                    [&](int chunk, int64_t begin, int64_t end) {
                      for (int64_t i = begin; i < end; ++i) {
                        run(head(i), head(std::min(i + 1, end - 1)), chunk);
                      }
                    });
}

}  // namespace

void CpuKernels::AttentionForward(const Attention& attention, const Tensor& qkv, const Tensor& y,
                                  const Tensor& log_sum_exp) {
  Span span(this);
  Buffers buffers(attention, qkv.shape()[1], qkv.dtype(), /*backward=*/false);
  buffers.scratch.Allocate(*this, MaxThreads());
  ForHeads(attention, qkv, instructions_, [&](const Head& head, const Head& next, int chunk) {
    ForwardHead(head, next, buffers, chunk, qkv, y, log_sum_exp);
  });
}

void CpuKernels::AttentionBackward(const Attention& attention, const Tensor& qkv, const Tensor& y,
                                   const Tensor& log_sum_exp, const Tensor& dy,
                                   const Tensor& dqkv) {
  Span span(this);
  Buffers buffers(attention, qkv.shape()[1], qkv.dtype(), /*backward=*/true);
  buffers.scratch.Allocate(*this, MaxThreads());
  ForHeads(attention, qkv, instructions_, [&](const Head& head, const Head& next, int chunk) {
    BackwardHead(head, next, buffers, chunk, qkv, y, log_sum_exp, dy, dqkv);
  });
}

}  // namespace lockstep
