// A leaf of queries and a leaf of keys: what causal self-attention over token leaves adds up. What
// the queries get from the keys, and the gradients that pass between them, are functions of this
// pair of leaves alone (ForwardPair, BackwardPair); trees over leaves add up the pairs. A rank that
// holds some of the leaves makes the same pairs, and so the same bits.
//
// A query leaf and a key leaf always meet, but perhaps not whole. A leaf's second chunk of queries
// sees the first chunk of keys of every leaf. Its first chunk sees the key leaves up to its own,
// and a second chunk of keys is seen by the query leaves up to its own. The leaves that a chunk
// takes something from are therefore the first ones, and what is not seen is left out of the sum.

#pragma once

#include <algorithm>
#include <cstdint>
#include <limits>
#include <utility>
#include <vector>

#include "core/base/parallel.h"
#include "core/base/sum_tree.h"
#include "core/base/token_order.h"
#include "core/kernels/cpu/attention_tiles.h"
#include "core/kernels/cpu/float_elements.h"
#include "core/kernels/cpu/row_tiles.h"  // Scratch
#include "core/kernels/options.h"
#include "core/tensor/tensor.h"

namespace lockstep::cpu {

// One head's queries of one leaf and its keys and values of another, or of the same.
struct LeafPair {
  const TokenOrder& order;
  AttentionHead queries, keys;  // where their rows lie
  int64_t sample, query_leaf, key_leaf;

  // Number of keys that the query at a place of its leaf sees; they are the leaf's first ones.
  int64_t Visible(int64_t place) const {
    return order.VisibleOf(key_leaf, order.PositionOf(query_leaf, place));
  }
  // The first of these that is of the query's document; Visible(place) where none is.
  int64_t FirstVisible(int64_t place) const {
    const int64_t position = order.PositionOf(query_leaf, place);
    return order.VisibleOf(key_leaf, queries.attention.documents.FirstOf(sample, position) - 1);
  }
  // The queries that see anything are those from this place on.
  int64_t FirstQuery() const { return key_leaf <= query_leaf ? 0 : order.chunk(); }
  // Number of the query's first probability in the pair among those of the unsharded layer.
  int64_t FirstProbability(int64_t place) const {
    const Attention& attention = queries.attention;
    const int64_t matrix = sample * attention.total_heads + attention.first_head + queries.head;
    return (matrix * order.time + query_leaf * order.leaf_time() + place) * order.time +
           key_leaf * order.leaf_time();
  }

  // Calls run(first query, count, SeenKeys) for tiles of queries, from the last to the first. No
  // tile has queries of both chunks, which are far apart.
  template <typename Run>
  void ForTiles(Run&& run) const {
    const int64_t chunk = order.chunk();
    for (int64_t begin = chunk; begin >= FirstQuery(); begin -= chunk) {
      for (int64_t at = (chunk - 1) / kAttentionTile * kAttentionTile; at >= 0;
           at -= kAttentionTile) {
        const int64_t rows = std::min(kAttentionTile, chunk - at);
        run(begin + at, rows,
            SeenFrom(keys, FirstVisible(begin + at), Visible(begin + at + rows - 1)));
      }
    }
  }
};

// The order in which the values of up to `leaves` leaves are added along the tree. Values are kept
// in slots, as many as there are nodes below the value that arrives.
class TreeSlots {
 public:
  explicit TreeSlots(int64_t leaves) : leaves_(leaves) {}

  // The slot of leaf `leaf`. It is the same in a tree over fewer leaves.
  int64_t SlotOf(int64_t leaf) const { return NodesBefore(leaf); }
  // The last slot. Its value is merged as soon as it is there.
  int64_t last() const { return MostNodesBefore(leaves_); }

  // Calls merge(slot) for each slot that is added to the one below it, after leaf `leaf` of `count`
  // has arrived.
  template <typename Merge>
  void Arrive(int64_t leaf, int64_t count, Merge&& merge) const {
    const int64_t slot = SlotOf(leaf);
    for (int64_t i = 0; i < MergedWith(leaf, count); ++i) merge(slot - i);
  }

 private:
  int64_t leaves_;
};

// What a call computes: all leaves, or those that a rank holds.
struct LeafCall {
  LeafCall(const Attention& options, int64_t leaves, const Tensor& projections,
           InstructionSet instruction_set)
      : LeafCall(options,
                 {.samples = projections.shape()[0] / leaves,
                  .time = projections.shape()[1] * leaves,
                  .leaves = leaves},
                 0, leaves, projections, instruction_set) {
    CHECK_EQ(qkv.shape()[0] % leaves, 0) << leaves << " leaves of " << qkv.shape();
  }
  // The projections begin with leaf `first`, and there are so many leaves of keys.
  LeafCall(const Attention& options, const TokenOrder& tokens, int64_t first,
           int64_t leaves_of_keys, const Tensor& projections, InstructionSet instruction_set)
      : attention(options),
        order(tokens),
        first_leaf(first),
        key_leaves(leaves_of_keys),
        qkv(projections),
        instructions(instruction_set),
        slots(std::max(key_leaves, qkv.shape()[0] / order.samples)) {
    CHECK(order.leaves > 1 && order.Fits()) << order.leaves << " leaves of " << qkv.shape();
  }

  // AttentionHead `i` of all samples, its rows of a leaf.
  AttentionHead LeafOf(int64_t i, int64_t leaf) const {
    return MakeAttentionHead(attention, qkv,
                             (leaf - first_leaf) * order.samples + i / attention.heads,
                             i % attention.heads, order.chunk(), instructions);
  }
  LeafPair PairOf(int64_t i, int64_t query_leaf, int64_t key_leaf) const {
    return {order,   LeafOf(i, query_leaf), LeafOf(i, key_leaf), i / attention.heads, query_leaf,
            key_leaf};
  }

  // Calls run(first, next, chunk) for the groups of heads of all samples, in parallel: heads
  // first, first + 1, ..., first + group - 1. `next` is the first head of the group that the thread
  // computes after it, or the same where it is the last.
  template <typename Function>
  void ForGroups(Function&& run) const {
    const int64_t group = attention.group();
    ParallelForChunks(order.samples * attention.heads_of_keys(), 1,
                      [&](int chunk, int64_t begin, int64_t end) {
                        for (int64_t i = begin; i < end; ++i) {
                          run(i * group, std::min(i + 1, end - 1) * group, chunk);
                        }
                      });
  }

  const Attention& attention;
  TokenOrder order;
  int64_t first_leaf;  // of qkv
  int64_t key_leaves;
  const Tensor& qkv;
  InstructionSet instructions;
  TreeSlots slots;
};

// What a thread needs for any pair of leaves. Sizes in floats, places as Scratch gives them.
struct PairBuffers {
  // With what backward needs beside, or without.
  enum class Direction { kForward, kBackward };
  PairBuffers(const LeafCall& call, Direction direction);

  // Rows of `leaves` leaves as floats, where the tensors have 16 bits.
  int64_t AddCopy(int64_t leaves) {
    return is_copied ? scratch.Add(leaves * leaf_time * width) : 0;
  }
  // Rows [leaf time, width] in scratch: those of leaf `leaf`.
  FloatRows RowsAt(int chunk, int64_t buffer, int64_t leaf = 0) const {
    return {scratch.At(chunk, buffer) + leaf * leaf_time * width, width};
  }

  Scratch scratch;
  int64_t leaf_time, width;
  int64_t tile_row;  // between two rows of a tile; no power of two, as in attention.cc
  int64_t operand;
  bool is_copied;
  int64_t tile, factors, keys, values;
  int64_t dtile = 0, left = 0, key_steps = 0;
};

// What the queries of a leaf have from some leaves of keys: the largest logit, which is not scaled;
// the sum of exp((logit - largest) * scale); and the values times these exponentials and dropout's
// factors, summed. fp32 whatever the dtype of the tensors: they are statistics, and not rounded.
struct Attended {
  float* largest;  // [leaf time]
  float* sum;      // [leaf time]
  FloatRows output;
};

// Adds what further keys give to queries [first, end). The tree's only rule.
void Merge(const Attended& more, int64_t first, int64_t end, int64_t width, float scale,
           const Attended& to);

// Writes what a pair's queries have from its keys, for the queries that see any. keys: packed by
// PackBlocks; values: by PackRight. row_done(place) is called once for each of these queries.
template <typename RowDone>
void ForwardPair(const LeafPair& pair, const PairBuffers& buffers, int chunk,
                 const FloatRows& queries, const float* keys, const float* values,
                 const Attended& result, RowDone&& row_done) {
  const Dropout& dropout = pair.queries.attention.dropout;
  float* tile = buffers.scratch.At(chunk, buffers.tile);
  float* factors = buffers.scratch.At(chunk, buffers.factors);
  pair.ForTiles([&](int64_t first, int64_t rows, const SeenKeys& seen) {
    Against(pair.keys, queries.At(first), queries.stride, rows, keys, seen, tile, buffers.tile_row);
    for (int64_t i = first; i < first + rows; ++i) {
      float* row = tile + (i - first) * buffers.tile_row;
      const int64_t first_seen = pair.FirstVisible(i), count = pair.Visible(i);
      row_done(i);
      if (first_seen == count) {  // all are of earlier documents
        result.largest[i] = std::numeric_limits<float>::lowest();
        result.sum[i] = 0;
        std::fill(row + seen.first, row + seen.end, 0.0f);
        continue;
      }
      const RowExponentials exponentials =
          ExponentialsOfRow(row, first_seen, count, pair.queries.scale);
      result.largest[i] = exponentials.largest;
      result.sum[i] = exponentials.sum;
      if (dropout.probability > 0) {
        DropoutFactors(dropout, pair.FirstProbability(i), count, factors);
        for (int64_t j = 0; j < count; ++j) row[j] *= factors[j];
      }
      std::fill(row + count, row + seen.end, 0.0f);
    }
    Weigh(pair.keys, tile, buffers.tile_row, rows, seen, values, result.output.At(first),
          result.output.stride);
  });
}

// What forward needs beside, for one head.
struct ForwardBuffers : PairBuffers {
  explicit ForwardBuffers(const LeafCall& call)
      : PairBuffers(call, Direction::kForward),
        sums(scratch.Add((call.slots.last() + 1) * 2 * leaf_time)),
        outputs(scratch.Add(call.slots.last() * leaf_time * width)),
        query_copy(AddCopy(1)),
        key_copy(AddCopy(1)),
        value_copy(AddCopy(1)),
        result_copy(AddCopy(1)) {}

  // Slot 0 is where the result will be.
  Attended Slot(int chunk, int64_t slot, const FloatRows& result) const {
    float* own_sums = scratch.At(chunk, sums) + slot * 2 * leaf_time;
    return {own_sums, own_sums + leaf_time, slot == 0 ? result : RowsAt(chunk, outputs, slot - 1)};
  }

  int64_t sums, outputs;
  int64_t query_copy, key_copy, value_copy, result_copy;
};

// A leaf's queries, and what a backward pass knows of them.
struct QueryLeaf {
  FloatRows queries, doutputs;                    // [leaf time, width]
  const float *packed_queries, *packed_doutputs;  // tile by tile, by PackRight
  const float *log_sum_exp, *products;            // [leaf time]; SoftmaxRowProduct
};
// A leaf's keys and values: both packed by PackBlocks, and the keys by PackRight.
struct KeyLeaf {
  const float *keys, *values, *key_steps;
};
struct PairGradients {
  FloatRows queries, keys, values;  // [leaf time, width]
};

// Writes the gradients that pass between a pair's queries and keys: those of queries that see any
// key, and of keys that any query sees. Heads of a group behind the first add to the gradients of
// keys and values. row_done(place) is called once for each of these queries.
template <typename RowDone>
void BackwardPair(const LeafPair& pair, const PairBuffers& buffers, int chunk,
                  const QueryLeaf& queries, const KeyLeaf& keys, const PairGradients& gradients,
                  RowDone&& row_done) {
  const Dropout& dropout = pair.queries.attention.dropout;
  const int64_t tile_row = buffers.tile_row, packed_row = PaddedToVectors(buffers.width);
  const auto at = [&](int64_t buffer) { return buffers.scratch.At(chunk, buffer); };
  float* tile = at(buffers.tile);
  float* dtile = at(buffers.dtile);
  float* factors = dropout.probability > 0 ? at(buffers.factors) : nullptr;
  // No tile sees a key behind those of the first tile, which has the last queries: it overwrites
  // what the others add to.
  Write write = pair.queries.begins_group ? Write::kOverwrite : Write::kAccumulate;
  pair.ForTiles([&](int64_t first, int64_t rows, const SeenKeys& seen) {
    Against(pair.keys, queries.queries.At(first), queries.queries.stride, rows, keys.keys, seen,
            tile, tile_row);
    Against(pair.keys, queries.doutputs.At(first), queries.doutputs.stride, rows, keys.values, seen,
            dtile, tile_row);
    for (int64_t i = first; i < first + rows; ++i) {
      const int64_t count = pair.Visible(i);
      row_done(i);
      if (factors != nullptr) {
        DropoutFactors(dropout, pair.FirstProbability(i), count, factors);
      }
      SoftmaxRowBackward(tile + (i - first) * tile_row, dtile + (i - first) * tile_row,
                         pair.FirstVisible(i), count, seen.end, pair.queries.scale,
                         queries.log_sum_exp[i], queries.products[i], factors);
    }
    WeighTransposed(pair.keys, tile, tile_row, rows, seen,
                    queries.packed_doutputs + first * packed_row, at(buffers.left), write,
                    gradients.values);
    WeighTransposed(pair.keys, dtile, tile_row, rows, seen,
                    queries.packed_queries + first * packed_row, at(buffers.left), write,
                    gradients.keys);
    Weigh(pair.keys, dtile, tile_row, rows, seen, keys.key_steps, gradients.queries.At(first),
          gradients.queries.stride);
    write = Write::kAccumulate;
  });
}

// What a thread needs beside for the gradients of queries.
struct BackwardPairBuffers : PairBuffers {
  explicit BackwardPairBuffers(const LeafCall& call);

  int64_t query_copy, key_copy, value_copy, output_copy, doutput_copy, dquery_copy;
  int64_t products, packed_queries, packed_doutputs;
  int64_t dqueries;  // slots above 0
};

// Loads and packs head `head`'s queries of its leaf, and the gradients of its outputs.
QueryLeaf LoadQueries(const LeafCall& call, const AttentionHead& head, const Tensor& y,
                      const Tensor& log_sum_exp, const Tensor& dy,
                      const BackwardPairBuffers& buffers, int chunk);

// Rounds `count` rows from row `first` on, the value of leaf `leaf` of `leaves`, to the sum's dtype
// and adds it to the nodes of the tree that it completes, each rounded.
template <typename SlotOf>
void AddLeaf(const TreeSlots& slots, int64_t leaf, int64_t leaves, int64_t first, int64_t count,
             int64_t width, DType dtype, SlotOf&& slot_of) {
  if (leaf >= leaves) return;
  const FloatRows value = slot_of(slots.SlotOf(leaf));
  for (int64_t i = first; i < first + count && dtype != DType::kF32; ++i) {
    RoundFloats(dtype, width, value.At(i));
  }
  slots.Arrive(leaf, leaves, [&](int64_t slot) {
    const FloatRows more = slot_of(slot), to = slot_of(slot - 1);
    for (int64_t i = first; i < first + count; ++i) {
      const float* added = more.At(i);
      float* sum = to.At(i);
      for (int64_t d = 0; d < width; ++d) sum[d] += added[d];
      RoundFloats(dtype, width, sum);
    }
  });
}

}  // namespace lockstep::cpu
