// Causal self-attention over token leaves that are all here: the sum of pairs of leaves
// (attention_leaf_pairs.h).

#include <algorithm>
#include <cstdint>
#include <utility>

#include "core/base/parallel.h"
#include "core/base/token_order.h"
#include "core/kernels/cpu/attention_leaf_pairs.h"
#include "core/kernels/cpu/attention_tiles.h"
#include "core/kernels/cpu/cpu_kernels.h"
#include "core/kernels/cpu/float_elements.h"
#include "core/kernels/cpu/span.h"
#include "core/kernels/cpu/tile_gemm.h"
#include "core/kernels/cpu/vector_math.h"
#include "glog/logging.h"

namespace lockstep {
namespace {

using cpu::Attended;
using cpu::AttentionHead;
using cpu::BackwardPairBuffers;
using cpu::FloatRows;
using cpu::ForwardBuffers;
using cpu::HeadRows;
using cpu::LeafCall;
using cpu::LeafPair;
using cpu::QueryLeaf;

// Packs the keys and values of the group that head `i` belongs to.
void PackForForward(const LeafCall& call, int64_t i, const ForwardBuffers& buffers, int chunk) {
  const auto at = [&](int64_t buffer) { return buffers.scratch.At(chunk, buffer); };
  for (int64_t leaf = 0; leaf < call.order.leaves; ++leaf) {
    const AttentionHead head = call.LeafOf(i, leaf);
    const FloatRows keys =
        HeadRows(head, call.qkv, head.key(), head.row, at(buffers.key_copy)).Load();
    const FloatRows values =
        HeadRows(head, call.qkv, head.value(), head.row, at(buffers.value_copy)).Load();
    cpu::PackBlocks(head, keys, at(buffers.keys) + leaf * buffers.operand);
    cpu::PackRight({values.first, values.stride}, head.time, buffers.width,
                   at(buffers.values) + leaf * buffers.operand);
  }
}

// Computes head `i`, whose group's keys and values are packed.
void ForwardHead(const LeafCall& call, int64_t i, int64_t next, const ForwardBuffers& buffers,
                 int chunk, const Tensor& y, const Tensor& log_sum_exp) {
  const Tensor& qkv = call.qkv;
  const TokenOrder& order = call.order;
  const auto at = [&](int64_t buffer) { return buffers.scratch.At(chunk, buffer); };
  const int64_t width = buffers.width;
  for (int64_t leaf = 0; leaf < order.leaves; ++leaf) {
    const AttentionHead head = call.LeafOf(i, leaf), next_head = call.LeafOf(next, leaf);
    const FloatRows queries =
        HeadRows(head, qkv, head.query(), head.row, at(buffers.query_copy)).Load();
    const HeadRows result(head, y, head.output(), head.y_row(), at(buffers.result_copy));
    const auto slot_of = [&](int64_t slot) { return buffers.Slot(chunk, slot, result.rows()); };
    for (int64_t key_leaf = 0; key_leaf < order.leaves; ++key_leaf) {
      cpu::ForwardPair(call.PairOf(i, leaf, key_leaf), buffers, chunk, queries,
                       at(buffers.keys) + key_leaf * buffers.operand,
                       at(buffers.values) + key_leaf * buffers.operand,
                       slot_of(call.slots.SlotOf(key_leaf)), [&](int64_t place) {
                         if (key_leaf == 0) cpu::FetchRow(next_head, place, {&qkv}, {});
                       });
      const auto arrive = [&](int64_t first, int64_t key_leaves) {
        if (key_leaf >= key_leaves) return;
        call.slots.Arrive(key_leaf, key_leaves, [&](int64_t slot) {
          cpu::Merge(slot_of(slot), first, first + order.chunk(), width, head.scale,
                     slot_of(slot - 1));
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

struct BackwardBuffers : BackwardPairBuffers {
  explicit BackwardBuffers(const LeafCall& call)
      : BackwardPairBuffers(call),
        leaves(call.order.leaves),
        last_slot(call.slots.last()),
        leaves_of_last_slot(call.attention.group() > 1 ? leaves : 1),
        dkey_copy(AddCopy(leaves)),
        dvalue_copy(AddCopy(leaves)),
        dkeys(scratch.Add(((last_slot - 1) * leaves + leaves_of_last_slot) * leaf_time * width)),
        dvalues(scratch.Add(((last_slot - 1) * leaves + leaves_of_last_slot) * leaf_time * width)) {
  }

  // Slots above 0 of the gradients of a leaf's keys or values.
  FloatRows KeySlot(int chunk, int64_t buffer, int64_t slot, int64_t leaf) const {
    const bool is_shared = slot == last_slot && leaves_of_last_slot == 1;
    return RowsAt(chunk, buffer, (slot - 1) * leaves + (is_shared ? 0 : leaf));
  }

  int64_t leaves, last_slot;
  // The last slot's value is merged as soon as all heads of the group have added to it. Where that
  // is one head, all leaves share the slot.
  int64_t leaves_of_last_slot;
  int64_t dkey_copy, dvalue_copy;
  int64_t dkeys, dvalues;
};

// Packs the keys and values of the group that head `i` belongs to.
void PackForBackward(const LeafCall& call, int64_t i, const BackwardBuffers& buffers, int chunk) {
  const auto at = [&](int64_t buffer) { return buffers.scratch.At(chunk, buffer); };
  for (int64_t leaf = 0; leaf < call.order.leaves; ++leaf) {
    const AttentionHead head = call.LeafOf(i, leaf);
    const FloatRows keys =
        HeadRows(head, call.qkv, head.key(), head.row, at(buffers.key_copy)).Load();
    const FloatRows values =
        HeadRows(head, call.qkv, head.value(), head.row, at(buffers.value_copy)).Load();
    const int64_t operand = leaf * buffers.operand;
    cpu::PackBlocks(head, keys, at(buffers.keys) + operand);
    cpu::PackBlocks(head, values, at(buffers.values) + operand);
    cpu::PackRight({keys.first, keys.stride}, head.time, buffers.width,
                   at(buffers.key_steps) + operand);
  }
}

// The gradients of one leaf's keys and of its values, of the group of heads that `head` is in.
struct KeyGradients {
  KeyGradients(const AttentionHead& head, const BackwardBuffers& buffers, int chunk, int64_t leaf,
               const Tensor& dqkv)
      : keys(head, dqkv, head.key(), head.row,
             buffers.RowsAt(chunk, buffers.dkey_copy, leaf).first),
        values(head, dqkv, head.value(), head.row,
               buffers.RowsAt(chunk, buffers.dvalue_copy, leaf).first) {}

  HeadRows keys, values;
};

// Computes the gradients of head `i`'s queries of one leaf, and adds what they give to the group's
// keys and values. The last head of a group adds their sums along the tree over leaves of queries.
void BackwardQueries(const LeafCall& call, int64_t i, int64_t next, int64_t leaf,
                     const BackwardBuffers& buffers, int chunk, const Tensor& y,
                     const Tensor& log_sum_exp, const Tensor& dy, const Tensor& dqkv) {
  const Tensor& qkv = call.qkv;
  const TokenOrder& order = call.order;
  const int64_t width = buffers.width;
  const auto at = [&](int64_t buffer) { return buffers.scratch.At(chunk, buffer); };
  const AttentionHead head = call.LeafOf(i, leaf), next_head = call.LeafOf(next, leaf);
  const QueryLeaf queries = cpu::LoadQueries(call, head, y, log_sum_exp, dy, buffers, chunk);
  const HeadRows dqueries(head, dqkv, head.query(), head.row, at(buffers.dquery_copy));
  const auto dquery_slot = [&](int64_t slot) {
    return slot == 0 ? dqueries.rows() : buffers.RowsAt(chunk, buffers.dqueries, slot - 1);
  };
  for (int64_t key_leaf = 0; key_leaf < order.leaves; ++key_leaf) {
    const LeafPair pair = call.PairOf(i, leaf, key_leaf);
    const KeyGradients gradients(pair.keys, buffers, chunk, key_leaf, dqkv);
    const auto dkey_slot = [&](int64_t slot) {
      return slot == 0 ? gradients.keys.rows()
                       : buffers.KeySlot(chunk, buffers.dkeys, slot, key_leaf);
    };
    const auto dvalue_slot = [&](int64_t slot) {
      return slot == 0 ? gradients.values.rows()
                       : buffers.KeySlot(chunk, buffers.dvalues, slot, key_leaf);
    };
    const int64_t operand = key_leaf * buffers.operand;
    const int64_t query_slot = call.slots.SlotOf(key_leaf), key_slot = call.slots.SlotOf(leaf);
    cpu::BackwardPair(
        pair, buffers, chunk, queries,
        {at(buffers.keys) + operand, at(buffers.values) + operand, at(buffers.key_steps) + operand},
        {dquery_slot(query_slot), dkey_slot(key_slot), dvalue_slot(key_slot)}, [&](int64_t place) {
          if (key_leaf == 0) cpu::FetchRow(next_head, place, {&qkv, &dqkv}, {&y, &dy});
        });
    // Each chunk has a tree of its own: over the leaves that it sees or is seen by.
    const auto add = [&](int64_t own_leaf, int64_t leaves, int64_t first, auto&& slot_of) {
      cpu::AddLeaf(call.slots, own_leaf, leaves, first, order.chunk(), width, dqkv.dtype(),
                   slot_of);
    };
    add(key_leaf, leaf + 1, 0, dquery_slot);
    add(key_leaf, order.leaves, order.chunk(), dquery_slot);
    if (!head.ends_group) continue;
    for (const auto& [first, leaves] :
         {std::pair{int64_t{0}, order.leaves}, std::pair{order.chunk(), key_leaf + 1}}) {
      add(leaf, leaves, first, dkey_slot);
      add(leaf, leaves, first, dvalue_slot);
    }
  }
  dqueries.Store();
}

}  // namespace

void CpuKernels::AttentionForwardByTokenLeaves(const Attention& attention, int64_t leaves,
                                               const Tensor& qkv, const Tensor& y,
                                               const Tensor& log_sum_exp) {
  Span span(this, {qkv}, {y, log_sum_exp});
  const LeafCall call(attention, leaves, qkv, instructions_);
  ForwardBuffers buffers(call);
  buffers.scratch.Allocate(*this, MaxThreads());
  call.ForGroups([&](int64_t first, int64_t next, int chunk) {
    PackForForward(call, first, buffers, chunk);
    const int64_t last = first + attention.group() - 1;
    for (int64_t head = first; head <= last; ++head) {
      ForwardHead(call, head, head < last ? head + 1 : next, buffers, chunk, y, log_sum_exp);
    }
  });
}

void CpuKernels::AttentionBackwardByTokenLeaves(const Attention& attention, int64_t leaves,
                                                const Tensor& qkv, const Tensor& y,
                                                const Tensor& log_sum_exp, const Tensor& dy,
                                                const Tensor& dqkv) {
  Span span(this, {qkv, y, log_sum_exp, dy}, {dqkv});
  const LeafCall call(attention, leaves, qkv, instructions_);
  BackwardBuffers buffers(call);
  buffers.scratch.Allocate(*this, MaxThreads());
  call.ForGroups([&](int64_t first, int64_t next, int chunk) {
    PackForBackward(call, first, buffers, chunk);
    const int64_t last = first + attention.group() - 1;
    for (int64_t leaf = 0; leaf < leaves; ++leaf) {
      for (int64_t head = first; head <= last; ++head) {
        BackwardQueries(call, head, head < last ? head + 1 : next, leaf, buffers, chunk, y,
                        log_sum_exp, dy, dqkv);
      }
    }
    for (int64_t leaf = 0; leaf < leaves; ++leaf) {
      const KeyGradients gradients(call.LeafOf(first, leaf), buffers, chunk, leaf, dqkv);
      gradients.keys.Store();
      gradients.values.Store();
    }
  });
}

}  // namespace lockstep
