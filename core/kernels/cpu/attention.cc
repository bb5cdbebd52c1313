// Causal self-attention in tiles of query rows: the probabilities of a tile live in cache and are
// made again in backward from the stored log-sum-exp of each row, so nothing of size time x time is
// ever in memory. Keys behind a tile's last query are never touched, which halves the work.

#include <algorithm>

#include "core/base/parallel.h"
#include "core/kernels/cpu/attention_tiles.h"
#include "core/kernels/cpu/cpu_kernels.h"
#include "core/kernels/cpu/row_tiles.h"  // Scratch
#include "core/kernels/cpu/span.h"
#include "core/kernels/cpu/tile_gemm.h"
#include "core/kernels/cpu/vector_math.h"
#include "glog/logging.h"

namespace lockstep {
namespace {

using cpu::FloatRows;
using cpu::HeadRows;
using Head = cpu::AttentionHead;
constexpr int64_t kTile = cpu::kAttentionTile;

int64_t Padded(int64_t count) { return cpu::PaddedToVectors(count); }

// What a thread needs besides its operands. Sizes in floats, places as Scratch gives them.
struct Buffers {
  Buffers(const Attention& attention, int64_t time, DType dtype, bool backward)
      : tile_row(Padded(time) + Padded(1)),
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

// Number of the first probability of query i among those of the unsharded layer.
int64_t FirstProbability(const Head& head, int64_t i) {
  const Attention& attention = head.attention;
  const int64_t matrix = head.batch * attention.total_heads + attention.first_head + head.head;
  return (matrix * head.time + i) * head.time;
}

// Softmax of `scale` times one row's logits [first, count) in place, the others up to `seen`
// zeroed; returns the log-sum-exp.
float SoftmaxRow(float* row, int64_t first, int64_t count, int64_t seen, float scale) {
  const int64_t padded = Padded(count);
  const cpu::RowExponentials exponentials = cpu::ExponentialsOfRow(row, first, count, scale);
  const float inverse = 1.0f / exponentials.sum;
  for (int64_t j = 0; j < padded; ++j) row[j] *= inverse;
  std::fill(row + count, row + std::max(seen, padded), 0.0f);
  return exponentials.largest * scale + cpu::Log(exponentials.sum);
}

// Packs the keys and values of a group of heads, whose rows are those of `keys`.
void PackForForward(const Head& keys, const FloatRows& key_rows, const FloatRows& value_rows,
                    const Buffers& buffers, int chunk) {
  cpu::PackBlocks(keys, key_rows, buffers.scratch.At(chunk, buffers.keys));
  cpu::PackRight({value_rows.first, value_rows.stride}, keys.time, keys.width(),
                 buffers.scratch.At(chunk, buffers.values));
}

// Attends with `count` queries of a head, of which the first is at position `before`, to the packed
// keys of `keys`, of positions 0 .. keys.time. row_done(query, log_sum_exp, probabilities, number
// of keys seen) may change the probabilities of a row.
template <typename RowDone>
void AttendToKeys(const Head& keys, int64_t before, int64_t count, const FloatRows& queries,
                  const FloatRows& result, const Buffers& buffers, int chunk, RowDone&& row_done) {
  const auto at = [&](int64_t buffer) { return buffers.scratch.At(chunk, buffer); };
  float* tile = at(buffers.tile);
  for (int64_t first = 0; first < count; first += kTile) {
    const int64_t rows = std::min(kTile, count - first);
    // Whole blocks of keys; what a query does not see has the probability 0.
    const int64_t blocks = (before + first + rows + kTile - 1) / kTile;
    const cpu::SeenKeys seen =
        cpu::SeenFrom(keys, keys.attention.documents.FirstOf(keys.batch, before + first),
                      std::min(blocks * kTile, keys.time));
    cpu::Against(keys, queries.At(first), queries.stride, rows, at(buffers.keys), seen, tile,
                 buffers.tile_row);
    for (int64_t i = first; i < first + rows; ++i) {
      float* row = tile + (i - first) * buffers.tile_row;
      const int64_t visible = before + i + 1;
      const int64_t first_seen = keys.attention.documents.FirstOf(keys.batch, before + i);
      row_done(i, SoftmaxRow(row, first_seen, visible, seen.end, keys.scale), row, visible);
    }
    cpu::Weigh(keys, tile, buffers.tile_row, rows, seen, at(buffers.values), result.At(first),
               result.stride);
  }
}

void ForwardHead(const Head& head, const Head& next, const Buffers& buffers, int chunk,
                 const Tensor& qkv, const Tensor& y, const Tensor& log_sum_exp) {
  const auto at = [&](int64_t buffer) { return buffers.scratch.At(chunk, buffer); };
  const auto load = [&](int64_t offset, int copy) {
    return HeadRows(head, qkv, offset, head.row, at(buffers.copies[copy])).Load();
  };
  const FloatRows queries = load(head.query(), 0);
  const HeadRows result(head, y, head.output(), head.y_row(), at(buffers.copies[3]));
  float* factors = at(buffers.factors);
  if (head.begins_group) {
    PackForForward(head, load(head.key(), 1), load(head.value(), 2), buffers, chunk);
  }
  AttendToKeys(head, 0, head.time, queries, result.rows(), buffers, chunk,
               [&](int64_t i, float row_log_sum_exp, float* row, int64_t count) {
                 cpu::FetchRow(next, i, {&qkv}, {});
                 log_sum_exp.data<float>()[head.sums() + i] = row_log_sum_exp;
                 if (head.attention.dropout.probability == 0) return;
                 cpu::DropoutFactors(head.attention.dropout, FirstProbability(head, i), count,
                                     factors);
                 for (int64_t j = 0; j < count; ++j) row[j] *= factors[j];
               });
  result.Store();
}

// The queries of one head of further tokens, and all keys and values of their sequence.
void ForwardFurtherHead(const Head& head, int64_t before, const Buffers& buffers, int chunk,
                        const Tensor& qkv, const Tensor& keys, const Tensor& y) {
  const auto copy = [&](int i) { return buffers.scratch.At(chunk, buffers.copies[i]); };
  Head all = head;
  all.time = all.chunk = before + head.time;
  if (head.begins_group) {
    const int64_t key_width = head.attention.key_width(), first = head.key_head * head.width();
    PackForForward(all, HeadRows(all, keys, first, 2 * key_width, copy(1)).Load(),
                   HeadRows(all, keys, key_width + first, 2 * key_width, copy(2)).Load(), buffers,
                   chunk);
  }
  const FloatRows queries = HeadRows(head, qkv, head.query(), head.row, copy(0)).Load();
  const HeadRows result(head, y, head.output(), head.y_row(), copy(3));
  AttendToKeys(all, before, head.time, queries, result.rows(), buffers, chunk,
               [](int64_t, float, const float*, int64_t) {});
  result.Store();
}

void BackwardHead(const Head& head, const Head& next, const Buffers& buffers, int chunk,
                  const Tensor& qkv, const Tensor& y, const Tensor& log_sum_exp, const Tensor& dy,
                  const Tensor& dqkv) {
  const auto at = [&](int64_t buffer) { return buffers.scratch.At(chunk, buffer); };
  const int64_t width = head.width(), tile_row = buffers.tile_row;
  const auto rows_of = [&](const Tensor& tensor, int64_t offset, int64_t row, int copy) {
    return HeadRows(head, tensor, offset, row, at(buffers.copies[copy]));
  };
  const FloatRows queries = rows_of(qkv, head.query(), head.row, 0).Load();
  const FloatRows outputs = rows_of(y, head.output(), head.y_row(), 3).Load();
  const FloatRows doutputs = rows_of(dy, head.output(), head.y_row(), 4).Load();
  const HeadRows dqueries = rows_of(dqkv, head.query(), head.row, 5);
  const HeadRows dkeys = rows_of(dqkv, head.key(), head.row, 6);
  const HeadRows dvalues = rows_of(dqkv, head.value(), head.row, 7);
  float* tile = at(buffers.tile);
  float* dtile = at(buffers.dtile);
  float* factors = head.attention.dropout.probability > 0 ? at(buffers.factors) : nullptr;
  if (head.begins_group) {
    const FloatRows keys = rows_of(qkv, head.key(), head.row, 1).Load();
    const FloatRows values = rows_of(qkv, head.value(), head.row, 2).Load();
    cpu::PackBlocks(head, keys, at(buffers.keys));
    cpu::PackBlocks(head, values, at(buffers.values));
    cpu::PackRight({keys.first, keys.stride}, head.time, width, at(buffers.key_steps));
  }
  // Tiles from the last to the first: the last sees every key, and overwrites what the others, and
  // the other heads of the group, add to.
  for (int64_t first = (head.time - 1) / kTile * kTile; first >= 0; first -= kTile) {
    const int64_t rows = std::min(kTile, head.time - first);
    const cpu::SeenKeys seen =
        cpu::SeenFrom(head, head.attention.documents.FirstOf(head.batch, first), first + rows);
    cpu::Against(head, queries.At(first), queries.stride, rows, at(buffers.keys), seen, tile,
                 tile_row);
    cpu::Against(head, doutputs.At(first), doutputs.stride, rows, at(buffers.values), seen, dtile,
                 tile_row);
    for (int64_t r = 0; r < rows; ++r) {
      const int64_t i = first + r, count = i + 1;
      cpu::FetchRow(next, i, {&qkv, &dqkv}, {&y, &dy});
      const float product = cpu::SoftmaxRowProduct(outputs.At(i), doutputs.At(i), width);
      if (factors != nullptr) {
        cpu::DropoutFactors(head.attention.dropout, FirstProbability(head, i), count, factors);
      }
      cpu::SoftmaxRowBackward(tile + r * tile_row, dtile + r * tile_row,
                              head.attention.documents.FirstOf(head.batch, i), count, seen.end,
                              head.scale, log_sum_exp.data<float>()[head.sums() + i], product,
                              factors);
    }
    const bool is_first = head.begins_group && seen.end == head.time;
    const Write write = is_first ? Write::kOverwrite : Write::kAccumulate;
    const auto add_transposed = [&](const float* from, const FloatRows& by, const FloatRows& to) {
      cpu::PackRight({by.At(first), by.stride}, rows, width, at(buffers.right));
      cpu::WeighTransposed(head, from, tile_row, rows, seen, at(buffers.right), at(buffers.left),
                           write, to);
    };
    add_transposed(tile, doutputs, dvalues.rows());
    add_transposed(dtile, queries, dkeys.rows());
    cpu::Weigh(head, dtile, tile_row, rows, seen, at(buffers.key_steps), dqueries.rows().At(first),
               dqueries.rows().stride);
  }
  dqueries.Store();
  if (!head.ends_group) return;
  dkeys.Store();
  dvalues.Store();
}

// Calls run(head, next, chunk) for all (batch, head) pairs, in parallel; `next` is the pair that
// the thread computes after it, or the same where it is the last. A thread has whole groups of
// heads, each in order: what the first head packs in the chunk's buffers, and what all of them add
// up there, is the group's.
template <typename Function>
void ForHeads(const Attention& attention, const Tensor& qkv, InstructionSet instructions,
              Function&& run) {
  const auto head = [&](int64_t i) {
    return cpu::MakeAttentionHead(attention, qkv, i / attention.heads, i % attention.heads,
                                  qkv.shape()[1], instructions);
  };
  const int64_t group = attention.group();
  ParallelForChunks(qkv.shape()[0] * attention.heads_of_keys(), 1,
                    [&](int chunk, int64_t begin, int64_t end) {
                      for (int64_t i = begin * group; i < end * group; ++i) {
                        run(head(i), head(std::min(i + 1, end * group - 1)), chunk);
                      }
                    });
}

}  // namespace

void CpuKernels::AttentionForward(const Attention& attention, const Tensor& qkv, const Tensor& y,
                                  const Tensor& log_sum_exp) {
  Span span(this, {qkv}, {y, log_sum_exp});
  Buffers buffers(attention, qkv.shape()[1], qkv.dtype(), /*backward=*/false);
  buffers.scratch.Allocate(*this, MaxThreads());
  ForHeads(attention, qkv, instructions_, [&](const Head& head, const Head& next, int chunk) {
    ForwardHead(head, next, buffers, chunk, qkv, y, log_sum_exp);
  });
}

void CpuKernels::AttentionOfFurtherTokens(const Attention& attention, int64_t before,
                                          const Tensor& qkv, const Tensor& keys, const Tensor& y) {
  Span span(this, {qkv, keys}, {y});
  const int64_t time = before + qkv.shape()[1];
  CHECK_EQ(qkv.shape()[0], 1) << "keys are kept of one sequence";
  CHECK_EQ(keys.shape()[1], 2 * attention.key_width()) << keys.shape();
  CHECK_LE(time, keys.shape()[0]) << keys.shape();
  CHECK_EQ(attention.dropout.probability, 0) << "dropout is for training";
  Buffers buffers(attention, time, qkv.dtype(), /*backward=*/false);
  buffers.scratch.Allocate(*this, MaxThreads());
  ForHeads(attention, qkv, instructions_, [&](const Head& head, const Head&, int chunk) {
    ForwardFurtherHead(head, before, buffers, chunk, qkv, keys, y);
  });
}

void CpuKernels::AttentionBackward(const Attention& attention, const Tensor& qkv, const Tensor& y,
                                   const Tensor& log_sum_exp, const Tensor& dy,
                                   const Tensor& dqkv) {
  Span span(this, {qkv, y, log_sum_exp, dy}, {dqkv});
  Buffers buffers(attention, qkv.shape()[1], qkv.dtype(), /*backward=*/true);
  buffers.scratch.Allocate(*this, MaxThreads());
  ForHeads(attention, qkv, instructions_, [&](const Head& head, const Head& next, int chunk) {
    BackwardHead(head, next, buffers, chunk, qkv, y, log_sum_exp, dy, dqkv);
  });
}

}  // namespace lockstep
