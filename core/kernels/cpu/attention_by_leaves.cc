// Causal self-attention over token leaves. What a leaf of queries gets from a leaf of keys, and the
// gradients that pass between them, are functions of this pair of leaves alone (ForwardPair,
// BackwardPair); trees over leaves add up the pairs. A rank that holds some of the leaves makes the
// same pairs, and so the same bits.
//
// A query leaf and a key leaf always meet, but perhaps not whole. A leaf's second chunk of queries
// sees the first chunk of keys of every leaf. Its first chunk sees the key leaves up to its own,
// and a second chunk of keys is seen by the query leaves up to its own. The leaves that a chunk
// takes something from are therefore the first ones, and what is not seen is left out of the sum.

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <utility>
#include <vector>

#include "core/base/parallel.h"
#include "core/base/sum_tree.h"
#include "core/base/token_order.h"
#include "core/kernels/cpu/attention_tiles.h"
#include "core/kernels/cpu/cpu_kernels.h"
#include "core/kernels/cpu/float_elements.h"
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

// One head's queries of one leaf and its keys and values of another, or of the same.
struct Pair {
  const TokenOrder& order;
  Head queries, keys;  // where their rows lie
  int64_t sample, query_leaf, key_leaf;

  // Number of keys that the query at a place of its leaf sees; they are the leaf's first ones.
  int64_t Visible(int64_t place) const {
    return order.VisibleOf(key_leaf, order.PositionOf(query_leaf, place));
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

  // Calls run(first query, count, keys seen by the last of them) for tiles of queries, from the
  // last to the first. No tile has queries of both chunks, which are far apart.
  template <typename Run>
  void ForTiles(Run&& run) const {
    const int64_t chunk = order.chunk();
    for (int64_t begin = chunk; begin >= FirstQuery(); begin -= chunk) {
      for (int64_t at = (chunk - 1) / kTile * kTile; at >= 0; at -= kTile) {
        const int64_t rows = std::min(kTile, chunk - at);
        run(begin + at, rows, Visible(begin + at + rows - 1));
      }
    }
  }
};

// The order in which the values of leaves are added along the tree. Values are kept in slots, as
// many as there are nodes below the value that arrives.
class TreeSlots {
 public:
  explicit TreeSlots(int64_t leaves) {
    for (int64_t count = 1; count <= leaves; ++count) {
      TreeStack stack(count);
      merged_.emplace_back();
      for (int64_t leaf = 0; leaf < count; ++leaf) {
        if (count == leaves) slots_.push_back(static_cast<int64_t>(stack.nodes().size()));
        merged_.back().push_back(stack.Push());
      }
    }
  }

  // The slot of leaf `leaf`. It is the same in a tree over fewer leaves.
  int64_t SlotOf(int64_t leaf) const { return slots_[leaf]; }
  // Number of slots below SlotOf(leaf) that are merged with it, in a tree over `count` leaves.
  int64_t MergedWith(int64_t leaf, int64_t count) const { return merged_[count - 1][leaf]; }
  // The last slot. Its value is merged as soon as it is there.
  int64_t last() const { return *std::max_element(slots_.begin(), slots_.end()); }

  // Calls merge(slot) for each slot that is added to the one below it, after leaf `leaf` of `count`
  // has arrived.
  template <typename Merge>
  void Arrive(int64_t leaf, int64_t count, Merge&& merge) const {
    const int64_t slot = SlotOf(leaf);
    for (int64_t i = 0; i < MergedWith(leaf, count); ++i) merge(slot - i);
  }

 private:
  std::vector<int64_t> slots_;
  std::vector<std::vector<int64_t>> merged_;  // [leaves of the tree - 1][leaf]
};

// What a call computes.
struct Call {
  Call(const Attention& options, int64_t leaves, const Tensor& projections,
       InstructionSet instruction_set)
      : attention(options),
        order{.samples = projections.shape()[0] / leaves,
              .time = projections.shape()[1] * leaves,
              .leaves = leaves},
        qkv(projections),
        instructions(instruction_set),
        slots(leaves) {
    CHECK(leaves > 1 && order.Fits() && qkv.shape()[0] % leaves == 0)
        << leaves << " leaves of " << qkv.shape();
  }

  // Head `i` of all samples, its rows of a leaf.
  Head LeafOf(int64_t i, int64_t leaf) const {
    return cpu::MakeAttentionHead(attention, qkv, leaf * order.samples + i / attention.heads,
                                  i % attention.heads, order.chunk(), instructions);
  }
  Pair PairOf(int64_t i, int64_t query_leaf, int64_t key_leaf) const {
    return {order,   LeafOf(i, query_leaf), LeafOf(i, key_leaf), i / attention.heads, query_leaf,
            key_leaf};
  }

  // Calls run(i, next, chunk) for the heads of all samples, in parallel; `next` is the one that the
  // thread computes after it, or the same where it is the last.
  template <typename Function>
  void ForHeads(Function&& run) const {
    ParallelForChunks(order.samples * attention.heads, 1,
                      [&](int chunk, int64_t begin, int64_t end) {
                        for (int64_t i = begin; i < end; ++i) {
                          run(i, std::min(i + 1, end - 1), chunk);
                        }
                      });
  }

  const Attention& attention;
  TokenOrder order;
  const Tensor& qkv;
  InstructionSet instructions;
  TreeSlots slots;
};

// What a thread needs for any pair of leaves. Sizes in floats, places as Scratch gives them.
struct PairBuffers {
  PairBuffers(const Call& call, bool backward)
      : leaf_time(call.order.leaf_time()),
        width(call.attention.head_width),
        tile_row(Padded(leaf_time) + Padded(1)),
        operand(std::max(cpu::PackedBlocksSize(leaf_time, call.order.chunk(), width),
                         cpu::PackedRightSize(leaf_time, width))),
        is_copied(call.qkv.dtype() != DType::kF32),
        tile(scratch.Add(kTile * tile_row)),
        factors(scratch.Add(Padded(leaf_time))),
        keys(scratch.Add(call.order.leaves * operand)),
        values(scratch.Add(call.order.leaves * operand)) {
    if (!backward) return;
    dtile = scratch.Add(kTile * tile_row);
    left = scratch.Add(cpu::PackedLeftSize(leaf_time, kTile));
    key_steps = scratch.Add(call.order.leaves * operand);
  }

  // Rows of `leaves` leaves as floats, where the tensors have 16 bits.
  int64_t AddCopy(int64_t leaves) {
    return is_copied ? scratch.Add(leaves * leaf_time * width) : 0;
  }
  // Rows [leaf time, width] in scratch: those of leaf `leaf`.
  FloatRows RowsAt(int chunk, int64_t buffer, int64_t leaf = 0) const {
    return {scratch.At(chunk, buffer) + leaf * leaf_time * width, width};
  }

  cpu::Scratch scratch;
  int64_t leaf_time, width;
  int64_t tile_row;  // between two rows of a tile; no power of two, as in attention.cc
  int64_t operand;
  bool is_copied;
  int64_t tile, factors, keys, values;
  int64_t dtile = 0, left = 0, key_steps = 0;
};

// --- forward ------------------------------------------------------------------------------------

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
           const Attended& to) {
  for (int64_t i = first; i < end; ++i) {
    const float largest = std::max(to.largest[i], more.largest[i]);
    const float factor = cpu::Exp((to.largest[i] - largest) * scale);
    const float factor_of_more = cpu::Exp((more.largest[i] - largest) * scale);
    to.largest[i] = largest;
    to.sum[i] = std::fma(more.sum[i], factor_of_more, to.sum[i] * factor);
    float* output = to.output.At(i);
    const float* added = more.output.At(i);
    for (int64_t d = 0; d < width; ++d) {
      output[d] = std::fma(added[d], factor_of_more, output[d] * factor);
    }
  }
}

// Writes what a pair's queries have from its keys, for the queries that see any. keys: packed by
// PackBlocks; values: by PackRight. row_done(place) is called once for each of these queries.
template <typename RowDone>
void ForwardPair(const Pair& pair, const PairBuffers& buffers, int chunk, const FloatRows& queries,
                 const float* keys, const float* values, const Attended& result,
                 RowDone&& row_done) {
  const Dropout& dropout = pair.queries.attention.dropout;
  float* tile = buffers.scratch.At(chunk, buffers.tile);
  float* factors = buffers.scratch.At(chunk, buffers.factors);
  pair.ForTiles([&](int64_t first, int64_t rows, int64_t seen) {
    cpu::Against(pair.keys, queries.At(first), queries.stride, rows, keys, seen, tile,
                 buffers.tile_row);
    for (int64_t i = first; i < first + rows; ++i) {
      float* row = tile + (i - first) * buffers.tile_row;
      const int64_t count = pair.Visible(i);
      row_done(i);
      const cpu::RowExponentials exponentials =
          cpu::ExponentialsOfRow(row, count, pair.queries.scale);
      result.largest[i] = exponentials.largest;
      result.sum[i] = exponentials.sum;
      if (dropout.probability > 0) {
        cpu::DropoutFactors(dropout, pair.FirstProbability(i), count, factors);
        for (int64_t j = 0; j < count; ++j) row[j] *= factors[j];
      }
      std::fill(row + count, row + seen, 0.0f);
    }
    cpu::Weigh(pair.keys, tile, buffers.tile_row, rows, seen, values, result.output.At(first),
               result.output.stride);
  });
}

struct ForwardBuffers : PairBuffers {
  explicit ForwardBuffers(const Call& call)
      : PairBuffers(call, /*backward=*/false),
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

void ForwardHead(const Call& call, int64_t i, int64_t next, const ForwardBuffers& buffers,
                 int chunk, const Tensor& y, const Tensor& log_sum_exp) {
  const Tensor& qkv = call.qkv;
  const TokenOrder& order = call.order;
  const auto at = [&](int64_t buffer) { return buffers.scratch.At(chunk, buffer); };
  const int64_t width = buffers.width;
  for (int64_t leaf = 0; leaf < order.leaves; ++leaf) {
    const Head head = call.LeafOf(i, leaf);
    const FloatRows keys = HeadRows(head, qkv, head.key(), head.row, at(buffers.key_copy)).Load();
    const FloatRows values =
        HeadRows(head, qkv, head.value(), head.row, at(buffers.value_copy)).Load();
    cpu::PackBlocks(head, keys, at(buffers.keys) + leaf * buffers.operand);
    cpu::PackRight({values.first, values.stride}, head.time, width,
                   at(buffers.values) + leaf * buffers.operand);
  }
  for (int64_t leaf = 0; leaf < order.leaves; ++leaf) {
    const Head head = call.LeafOf(i, leaf), next_head = call.LeafOf(next, leaf);
    const FloatRows queries =
        HeadRows(head, qkv, head.query(), head.row, at(buffers.query_copy)).Load();
    const HeadRows result(head, y, head.output(), head.y_row(), at(buffers.result_copy));
    const auto slot_of = [&](int64_t slot) { return buffers.Slot(chunk, slot, result.rows()); };
    for (int64_t key_leaf = 0; key_leaf < order.leaves; ++key_leaf) {
      ForwardPair(call.PairOf(i, leaf, key_leaf), buffers, chunk, queries,
                  at(buffers.keys) + key_leaf * buffers.operand,
                  at(buffers.values) + key_leaf * buffers.operand,
                  slot_of(call.slots.SlotOf(key_leaf)), [&](int64_t place) {
                    if (key_leaf == 0) cpu::FetchRow(next_head, place, {&qkv}, {});
                  });
      const auto arrive = [&](int64_t first, int64_t key_leaves) {
        if (key_leaf >= key_leaves) return;
        call.slots.Arrive(key_leaf, key_leaves, [&](int64_t slot) {
          Merge(slot_of(slot), first, first + order.chunk(), width, head.scale, slot_of(slot - 1));
        });
      };
      arrive(0, leaf + 1);
      arrive(order.chunk(), order.leaves);
    }
    const Attended all = slot_of(0);
    for (int64_t t = 0; t < head.time; ++t) {
      float* output = all.output.At(t);
      for (int64_t d = 0; d < width; ++d) output[d] /= all.sum[t];
      log_sum_exp.data<float>()[head.sums() + t] =
          all.largest[t] * head.scale + cpu::Log(all.sum[t]);
    }
    result.Store();
  }
}

// --- backward -----------------------------------------------------------------------------------

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
// key, and of keys that any query sees. row_done(place) is called once for each of these queries.
template <typename RowDone>
void BackwardPair(const Pair& pair, const PairBuffers& buffers, int chunk, const QueryLeaf& queries,
                  const KeyLeaf& keys, const PairGradients& gradients, RowDone&& row_done) {
  const Dropout& dropout = pair.queries.attention.dropout;
  const int64_t tile_row = buffers.tile_row, packed_row = Padded(buffers.width);
  const auto at = [&](int64_t buffer) { return buffers.scratch.At(chunk, buffer); };
  float* tile = at(buffers.tile);
  float* dtile = at(buffers.dtile);
  float* factors = dropout.probability > 0 ? at(buffers.factors) : nullptr;
  // The first tile, of the last queries, sees every key that any tile sees: it overwrites what the
  // others add to.
  Write write = Write::kOverwrite;
  pair.ForTiles([&](int64_t first, int64_t rows, int64_t seen) {
    cpu::Against(pair.keys, queries.queries.At(first), queries.queries.stride, rows, keys.keys,
                 seen, tile, tile_row);
    cpu::Against(pair.keys, queries.doutputs.At(first), queries.doutputs.stride, rows, keys.values,
                 seen, dtile, tile_row);
    for (int64_t i = first; i < first + rows; ++i) {
      const int64_t count = pair.Visible(i);
      row_done(i);
      if (factors != nullptr) {
        cpu::DropoutFactors(dropout, pair.FirstProbability(i), count, factors);
      }
      cpu::SoftmaxRowBackward(tile + (i - first) * tile_row, dtile + (i - first) * tile_row, count,
                              seen, pair.queries.scale, queries.log_sum_exp[i], queries.products[i],
                              factors);
    }
    cpu::WeighTransposed(pair.keys, tile, tile_row, rows, seen,
                         queries.packed_doutputs + first * packed_row, at(buffers.left), write,
                         gradients.values);
    cpu::WeighTransposed(pair.keys, dtile, tile_row, rows, seen,
                         queries.packed_queries + first * packed_row, at(buffers.left), write,
                         gradients.keys);
    cpu::Weigh(pair.keys, dtile, tile_row, rows, seen, keys.key_steps, gradients.queries.At(first),
               gradients.queries.stride);
    write = Write::kAccumulate;
  });
}

struct BackwardBuffers : PairBuffers {
  explicit BackwardBuffers(const Call& call)
      : PairBuffers(call, /*backward=*/true),
        leaves(call.order.leaves),
        last_slot(call.slots.last()),
        query_copy(AddCopy(1)),
        key_copy(AddCopy(1)),
        value_copy(AddCopy(1)),
        output_copy(AddCopy(1)),
        doutput_copy(AddCopy(1)),
        dquery_copy(AddCopy(1)),
        dkey_copy(AddCopy(leaves)),
        dvalue_copy(AddCopy(leaves)),
        products(scratch.Add(leaf_time)),
        packed_queries(scratch.Add(operand)),
        packed_doutputs(scratch.Add(operand)),
        dqueries(scratch.Add(last_slot * leaf_time * width)),
        // The last slot's value is merged at once, so all leaves share it.
        dkeys(scratch.Add(((last_slot - 1) * leaves + 1) * leaf_time * width)),
        dvalues(scratch.Add(((last_slot - 1) * leaves + 1) * leaf_time * width)) {}

  // Slots above 0 of the gradients of a leaf's keys or values.
  FloatRows KeySlot(int chunk, int64_t buffer, int64_t slot, int64_t leaf) const {
    return RowsAt(chunk, buffer, (slot - 1) * leaves + (slot == last_slot ? 0 : leaf));
  }

  int64_t leaves, last_slot;
  int64_t query_copy, key_copy, value_copy, output_copy, doutput_copy;
  int64_t dquery_copy, dkey_copy, dvalue_copy;
  int64_t products, packed_queries, packed_doutputs;
  int64_t dqueries, dkeys, dvalues;
};

// Rounds `count` rows from row `first` on, the value of leaf `leaf` of `leaves`, to the sum's dtype
// and adds it to the nodes of the tree that it completes, each rounded.
template <typename SlotOf>
void AddLeaf(const TreeSlots& slots, int64_t leaf, int64_t leaves, int64_t first, int64_t count,
             int64_t width, DType dtype, SlotOf&& slot_of) {
  if (leaf >= leaves) return;
  const FloatRows value = slot_of(slots.SlotOf(leaf));
  for (int64_t i = first; i < first + count && dtype != DType::kF32; ++i) {
    cpu::RoundFloats(dtype, width, value.At(i));
  }
  slots.Arrive(leaf, leaves, [&](int64_t slot) {
    const FloatRows more = slot_of(slot), to = slot_of(slot - 1);
    for (int64_t i = first; i < first + count; ++i) {
      const float* added = more.At(i);
      float* sum = to.At(i);
      for (int64_t d = 0; d < width; ++d) sum[d] += added[d];
      cpu::RoundFloats(dtype, width, sum);
    }
  });
}

void BackwardHead(const Call& call, int64_t i, int64_t next, const BackwardBuffers& buffers,
                  int chunk, const Tensor& y, const Tensor& log_sum_exp, const Tensor& dy,
                  const Tensor& dqkv) {
  const Tensor& qkv = call.qkv;
  const TokenOrder& order = call.order;
  const int64_t width = buffers.width, packed_row = Padded(width),
                copied = order.leaf_time() * width;
  const auto at = [&](int64_t buffer) { return buffers.scratch.At(chunk, buffer); };
  for (int64_t leaf = 0; leaf < order.leaves; ++leaf) {
    const Head head = call.LeafOf(i, leaf);
    const FloatRows keys = HeadRows(head, qkv, head.key(), head.row, at(buffers.key_copy)).Load();
    const FloatRows values =
        HeadRows(head, qkv, head.value(), head.row, at(buffers.value_copy)).Load();
    const int64_t operand = leaf * buffers.operand;
    cpu::PackBlocks(head, keys, at(buffers.keys) + operand);
    cpu::PackBlocks(head, values, at(buffers.values) + operand);
    cpu::PackRight({keys.first, keys.stride}, head.time, width, at(buffers.key_steps) + operand);
  }
  const auto dkeys_of = [&](const Head& head, int64_t leaf) {
    return HeadRows(head, dqkv, head.key(), head.row, at(buffers.dkey_copy) + leaf * copied);
  };
  const auto dvalues_of = [&](const Head& head, int64_t leaf) {
    return HeadRows(head, dqkv, head.value(), head.row, at(buffers.dvalue_copy) + leaf * copied);
  };
  for (int64_t leaf = 0; leaf < order.leaves; ++leaf) {
    const Head head = call.LeafOf(i, leaf), next_head = call.LeafOf(next, leaf);
    const auto load = [&](const Tensor& tensor, int64_t offset, int64_t row, int64_t copy) {
      return HeadRows(head, tensor, offset, row, at(copy)).Load();
    };
    const FloatRows outputs = load(y, head.output(), head.y_row(), buffers.output_copy);
    const QueryLeaf queries = {
        .queries = load(qkv, head.query(), head.row, buffers.query_copy),
        .doutputs = load(dy, head.output(), head.y_row(), buffers.doutput_copy),
        .packed_queries = at(buffers.packed_queries),
        .packed_doutputs = at(buffers.packed_doutputs),
        .log_sum_exp = log_sum_exp.data<float>() + head.sums(),
        .products = at(buffers.products)};
    for (int64_t t = 0; t < head.time; ++t) {
      at(buffers.products)[t] =
          cpu::SoftmaxRowProduct(outputs.At(t), queries.doutputs.At(t), width);
    }
    for (int64_t begin = 0; begin < head.time; begin += order.chunk()) {
      for (int64_t t = 0; t < order.chunk(); t += kTile) {
        const int64_t first = begin + t, rows = std::min(kTile, order.chunk() - t);
        cpu::PackRight({queries.queries.At(first), queries.queries.stride}, rows, width,
                       at(buffers.packed_queries) + first * packed_row);
        cpu::PackRight({queries.doutputs.At(first), queries.doutputs.stride}, rows, width,
                       at(buffers.packed_doutputs) + first * packed_row);
      }
    }
    const HeadRows dqueries(head, dqkv, head.query(), head.row, at(buffers.dquery_copy));
    const auto dquery_slot = [&](int64_t slot) {
      return slot == 0 ? dqueries.rows() : buffers.RowsAt(chunk, buffers.dqueries, slot - 1);
    };
    for (int64_t key_leaf = 0; key_leaf < order.leaves; ++key_leaf) {
      const Pair pair = call.PairOf(i, leaf, key_leaf);
      const auto dkey_slot = [&](int64_t slot) {
        return slot == 0 ? dkeys_of(pair.keys, key_leaf).rows()
                         : buffers.KeySlot(chunk, buffers.dkeys, slot, key_leaf);
      };
      const auto dvalue_slot = [&](int64_t slot) {
        return slot == 0 ? dvalues_of(pair.keys, key_leaf).rows()
                         : buffers.KeySlot(chunk, buffers.dvalues, slot, key_leaf);
      };
      const int64_t operand = key_leaf * buffers.operand;
      const int64_t query_slot = call.slots.SlotOf(key_leaf), key_slot = call.slots.SlotOf(leaf);
      BackwardPair(pair, buffers, chunk, queries,
                   {at(buffers.keys) + operand, at(buffers.values) + operand,
                    at(buffers.key_steps) + operand},
                   {dquery_slot(query_slot), dkey_slot(key_slot), dvalue_slot(key_slot)},
                   [&](int64_t place) {
                     if (key_leaf == 0) cpu::FetchRow(next_head, place, {&qkv, &dqkv}, {&y, &dy});
                   });
      // Each chunk has a tree of its own: over the leaves that it sees or is seen by.
      const auto add = [&](int64_t own_leaf, int64_t leaves, int64_t first, auto&& slot_of) {
        AddLeaf(call.slots, own_leaf, leaves, first, order.chunk(), width, dqkv.dtype(), slot_of);
      };
      add(key_leaf, leaf + 1, 0, dquery_slot);
      add(key_leaf, order.leaves, order.chunk(), dquery_slot);
      for (const auto& [first, leaves] :
           {std::pair{int64_t{0}, order.leaves}, std::pair{order.chunk(), key_leaf + 1}}) {
        add(leaf, leaves, first, dkey_slot);
        add(leaf, leaves, first, dvalue_slot);
      }
    }
    dqueries.Store();
  }
  for (int64_t leaf = 0; leaf < order.leaves; ++leaf) {
    const Head head = call.LeafOf(i, leaf);
    dkeys_of(head, leaf).Store();
    dvalues_of(head, leaf).Store();
  }
}

}  // namespace

void CpuKernels::AttentionForwardByTokenLeaves(const Attention& attention, int64_t leaves,
                                               const Tensor& qkv, const Tensor& y,
                                               const Tensor& log_sum_exp) {
  Span span(this, {qkv, y, log_sum_exp});
  const Call call(attention, leaves, qkv, instructions_);
  ForwardBuffers buffers(call);
  buffers.scratch.Allocate(*this, MaxThreads());
  call.ForHeads([&](int64_t head, int64_t next, int chunk) {
    ForwardHead(call, head, next, buffers, chunk, y, log_sum_exp);
  });
}

void CpuKernels::AttentionBackwardByTokenLeaves(const Attention& attention, int64_t leaves,
                                                const Tensor& qkv, const Tensor& y,
                                                const Tensor& log_sum_exp, const Tensor& dy,
                                                const Tensor& dqkv) {
  Span span(this, {qkv, y, log_sum_exp, dy, dqkv});
  const Call call(attention, leaves, qkv, instructions_);
  BackwardBuffers buffers(call);
  buffers.scratch.Allocate(*this, MaxThreads());
  call.ForHeads([&](int64_t head, int64_t next, int chunk) {
    BackwardHead(call, head, next, buffers, chunk, y, log_sum_exp, dy, dqkv);
  });
}

}  // namespace lockstep
