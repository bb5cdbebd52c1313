// Causal self-attention over token leaves of which some are here: those of a rank that divides
// sequences with others. Partial results have the bits of the same nodes in attention_by_leaves.cc.

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
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
using cpu::QueryLeaf;

// Number of the leaves of `run` among the first `end` leaves.
int64_t CountBelow(const Range& run, int64_t end) {
  return std::clamp<int64_t>(end - run.first, 0, run.count);
}

// What a call computes for a rank that holds some of the leaves. Trees over the leaves of a run are
// nodes of the trees over all leaves.
struct PartCall : LeafCall {
  PartCall(const Attention& options, const AttentionPart& of_part, const Tensor& queries,
           const Tensor& keys_and_values, InstructionSet instruction_set)
      : LeafCall(options,
                 {.samples = queries.shape()[0] / of_part.queries.count,
                  .time = queries.shape()[1] * of_part.leaves,
                  .leaves = of_part.leaves},
                 of_part.queries.first, of_part.keys.count, queries, instruction_set),
        part(of_part),
        keys(keys_and_values),
        key_width(keys.shape()[2] / 2),
        group(options.heads * options.head_width / key_width) {
    CHECK_EQ(queries.shape()[0] % part.queries.count, 0) << queries.shape();
    CHECK_EQ(keys.shape()[0], part.keys.count * order.samples) << keys.shape();
    CHECK_EQ(keys.shape()[1], order.leaf_time()) << keys.shape();
  }

  // Where head `i` begins in the rows of a leaf of keys, or of values, of a tensor like `keys`.
  int64_t KeyOffset(int64_t i, int64_t leaf, bool are_values) const {
    const int64_t sequence = (leaf - part.keys.first) * order.samples + i / attention.heads;
    return sequence * order.leaf_time() * 2 * key_width + (are_values ? key_width : 0) +
           i % attention.heads / group * attention.head_width;
  }
  HeadRows KeyRows(const Tensor& tensor, int64_t i, int64_t leaf, bool are_values,
                   float* copy) const {
    return {LeafOf(i, part.queries.first), tensor, KeyOffset(i, leaf, are_values), 2 * key_width,
            copy};
  }

  // Calls run(first head of a group, chunk) for the groups of all samples, in parallel.
  template <typename Function>
  void ForKeyHeads(Function&& run) const {
    ParallelForChunks(order.samples * attention.heads / group, 1,
                      [&](int chunk, int64_t begin, int64_t end) {
                        for (int64_t i = begin; i < end; ++i) run(i * group, chunk);
                      });
  }

  const AttentionPart& part;
  const Tensor& keys;
  int64_t key_width;  // of a row of all keys
  int64_t group;      // heads of queries that read the same keys
};

void ForwardPart(const PartCall& call, int64_t first_head, const ForwardBuffers& buffers, int chunk,
                 const AttentionSums& to) {
  const TokenOrder& order = call.order;
  const Range &query_run = call.part.queries, &key_run = call.part.keys;
  const int64_t width = buffers.width;
  const auto at = [&](int64_t buffer) { return buffers.scratch.At(chunk, buffer); };
  const auto operand = [&](int64_t buffer, int64_t leaf) {
    return at(buffer) + (leaf - key_run.first) * buffers.operand;
  };
  for (int64_t leaf = key_run.first; leaf < key_run.first + key_run.count; ++leaf) {
    const AttentionHead head = call.LeafOf(first_head, query_run.first);
    const auto rows_of = [&](bool are_values, int64_t copy) {
      return call.KeyRows(call.keys, first_head, leaf, are_values, at(copy)).Load();
    };
    cpu::PackBlocks(head, rows_of(false, buffers.key_copy), operand(buffers.keys, leaf));
    const FloatRows values = rows_of(true, buffers.value_copy);
    cpu::PackRight({values.first, values.stride}, head.time, width, operand(buffers.values, leaf));
  }
  for (int64_t i = first_head; i < first_head + call.group; ++i) {
    for (int64_t leaf = query_run.first; leaf < query_run.first + query_run.count; ++leaf) {
      const AttentionHead head = call.LeafOf(i, leaf);
      const FloatRows queries =
          HeadRows(head, call.qkv, head.query(), head.row, at(buffers.query_copy)).Load();
      const FloatRows outputs = {to.outputs.data<float>() + head.output(), head.y_row()};
      const auto slot_of = [&](int64_t slot) { return buffers.Slot(chunk, slot, outputs); };
      for (int64_t key_leaf = key_run.first; key_leaf < key_run.first + key_run.count; ++key_leaf) {
        const int64_t place = key_leaf - key_run.first;
        cpu::ForwardPair(call.PairOf(i, leaf, key_leaf), buffers, chunk, queries,
                         operand(buffers.keys, key_leaf), operand(buffers.values, key_leaf),
                         slot_of(call.slots.SlotOf(place)), [](int64_t) {});
        const auto arrive = [&](int64_t first, int64_t key_leaves) {
          if (place >= key_leaves) return;
          call.slots.Arrive(place, key_leaves, [&](int64_t slot) {
            cpu::Merge(slot_of(slot), first, first + order.chunk(), width, head.scale,
                       slot_of(slot - 1));
          });
        };
        arrive(0, CountBelow(key_run, leaf + 1));
        arrive(order.chunk(), key_run.count);
      }
      const Attended all = slot_of(0);
      const int64_t unseeing = CountBelow(key_run, leaf + 1) == 0 ? order.chunk() : 0;
      std::fill_n(all.largest, unseeing, std::numeric_limits<float>::lowest());
      std::fill_n(all.sum, unseeing, 0.0f);
      for (int64_t t = 0; t < unseeing; ++t) std::fill_n(outputs.At(t), width, 0.0f);
      std::copy_n(all.largest, head.time, to.largest.data<float>() + head.sums());
      std::copy_n(all.sum, head.time, to.sums.data<float>() + head.sums());
    }
  }
}

// What the queries of one head of a sequence, `place` in [sequences * heads], have.
Attended AttendedAt(const Attention& attention, const AttentionSums& of, int64_t place) {
  const int64_t time = of.outputs.shape()[1], row = of.outputs.shape()[2];
  const int64_t sequence = place / attention.heads, head = place % attention.heads;
  float* const largest = of.largest.data<float>();
  float* const sums = of.sums.data<float>();
  CHECK(largest != nullptr && sums != nullptr) << "sums without memory";
  return {largest + place * time,
          sums + place * time,
          {of.outputs.data<float>() + sequence * time * row + head * attention.head_width, row}};
}

// Calls run(attended, time, place) for each head of each sequence, in parallel.
template <typename Run>
void ForSequences(const Attention& attention, const AttentionSums& of, Run&& run) {
  ParallelFor(of.outputs.shape()[0] * attention.heads, 1, [&](int64_t begin, int64_t end) {
    for (int64_t place = begin; place < end; ++place) {
      run(AttendedAt(attention, of, place), of.outputs.shape()[1], place);
    }
  });
}

float ScaleOf(const Attention& attention) {
  return 1.0f / std::sqrt(static_cast<float>(attention.head_width));
}

struct PartBackwardBuffers : BackwardPairBuffers {
  explicit PartBackwardBuffers(const PartCall& call)
      : BackwardPairBuffers(call),
        key_leaves(call.part.keys.count),
        dkey_copy(AddCopy(key_leaves)),
        dvalue_copy(AddCopy(key_leaves)),
        dkeys(scratch.Add(call.slots.last() * key_leaves * leaf_time * width)),
        dvalues(scratch.Add(call.slots.last() * key_leaves * leaf_time * width)) {}

  int64_t key_leaves;
  int64_t dkey_copy, dvalue_copy;
  int64_t dkeys, dvalues;
};

// Makes `count` rows from row `first` on an empty sum, which changes no other.
void FillEmpty(const FloatRows& rows, int64_t first, int64_t count, int64_t width) {
  for (int64_t i = first; i < first + count; ++i) std::fill_n(rows.At(i), width, -0.0f);
}

// The tensors that a part's backward reads and writes, as the kernel takes them.
struct PartTensors {
  const Tensor &y, &log_sum_exp, &dy, &dqueries, &dkeys;
};

void BackwardPart(const PartCall& call, int64_t first_head, const PartBackwardBuffers& buffers,
                  int chunk, const PartTensors& tensors) {
  const TokenOrder& order = call.order;
  const Range &query_run = call.part.queries, &key_run = call.part.keys;
  const int64_t width = buffers.width;
  const DType dtype = tensors.dqueries.dtype();
  const auto at = [&](int64_t buffer) { return buffers.scratch.At(chunk, buffer); };
  const auto operand = [&](int64_t buffer, int64_t place) {
    return at(buffer) + place * buffers.operand;
  };
  for (int64_t place = 0; place < key_run.count; ++place) {
    const AttentionHead head = call.LeafOf(first_head, query_run.first);
    const auto rows_of = [&](bool are_values, int64_t copy) {
      return call.KeyRows(call.keys, first_head, key_run.first + place, are_values, at(copy))
          .Load();
    };
    const FloatRows keys = rows_of(false, buffers.key_copy);
    cpu::PackBlocks(head, keys, operand(buffers.keys, place));
    cpu::PackBlocks(head, rows_of(true, buffers.value_copy), operand(buffers.values, place));
    cpu::PackRight({keys.first, keys.stride}, head.time, width, operand(buffers.key_steps, place));
  }
  // Where the gradients of a leaf's keys, or values, will be: slot 0.
  const auto gradient_of = [&](int64_t place, bool are_values) {
    const int64_t copies = are_values ? buffers.dvalue_copy : buffers.dkey_copy;
    return call.KeyRows(tensors.dkeys, first_head, key_run.first + place, are_values,
                        buffers.RowsAt(chunk, copies, place).first);
  };
  for (int64_t leaf = query_run.first; leaf < query_run.first + query_run.count; ++leaf) {
    for (int64_t i = first_head; i < first_head + call.group; ++i) {
      const AttentionHead head = call.LeafOf(i, leaf);
      const QueryLeaf queries =
          cpu::LoadQueries(call, head, tensors.y, tensors.log_sum_exp, tensors.dy, buffers, chunk);
      const int64_t row = tensors.dqueries.shape()[2];
      const HeadRows dqueries(head, tensors.dqueries,
                              head.batch * head.time * row + head.head * width, row,
                              at(buffers.dquery_copy));
      const auto dquery_slot = [&](int64_t slot) {
        return slot == 0 ? dqueries.rows() : buffers.RowsAt(chunk, buffers.dqueries, slot - 1);
      };
      for (int64_t place = 0; place < key_run.count; ++place) {
        const int64_t key_leaf = key_run.first + place;
        const auto slot_of = [&](bool are_values) {
          return [&, are_values](int64_t slot) {
            if (slot == 0) return gradient_of(place, are_values).rows();
            return buffers.RowsAt(chunk, are_values ? buffers.dvalues : buffers.dkeys,
                                  (slot - 1) * buffers.key_leaves + place);
          };
        };
        const auto dkey_slot = slot_of(false), dvalue_slot = slot_of(true);
        const int64_t query_place = leaf - query_run.first;
        const int64_t query_slot = call.slots.SlotOf(place),
                      key_slot = call.slots.SlotOf(query_place);
        cpu::BackwardPair(call.PairOf(i, leaf, key_leaf), buffers, chunk, queries,
                          {operand(buffers.keys, place), operand(buffers.values, place),
                           operand(buffers.key_steps, place)},
                          {dquery_slot(query_slot), dkey_slot(key_slot), dvalue_slot(key_slot)},
                          [](int64_t) {});
        const auto add = [&](int64_t own, int64_t leaves, int64_t first, const auto& slots) {
          cpu::AddLeaf(call.slots, own, leaves, first, order.chunk(), width, dtype, slots);
        };
        add(place, CountBelow(key_run, leaf + 1), 0, dquery_slot);
        add(place, key_run.count, order.chunk(), dquery_slot);
        if (i + 1 < first_head + call.group) continue;
        for (const auto& [first, leaves] :
             {std::pair{int64_t{0}, query_run.count},
              std::pair{order.chunk(), CountBelow(query_run, key_leaf + 1)}}) {
          add(query_place, leaves, first, dkey_slot);
          add(query_place, leaves, first, dvalue_slot);
        }
      }
      if (CountBelow(key_run, leaf + 1) == 0) FillEmpty(dqueries.rows(), 0, order.chunk(), width);
      dqueries.Store();
    }
  }
  for (int64_t place = 0; place < key_run.count; ++place) {
    const bool is_seen = CountBelow(query_run, key_run.first + place + 1) > 0;
    for (const bool are_values : {false, true}) {
      const HeadRows gradient = gradient_of(place, are_values);
      if (!is_seen) FillEmpty(gradient.rows(), order.chunk(), order.chunk(), width);
      gradient.Store();
    }
  }
}

}  // namespace

void CpuKernels::AttentionOfPart(const Attention& attention, const AttentionPart& part,
                                 const Tensor& queries, const Tensor& keys,
                                 const AttentionSums& to) {
  Span span(this, {queries, keys}, {to.largest, to.sums, to.outputs});
  const PartCall call(attention, part, queries, keys, instructions_);
  ForwardBuffers buffers(call);
  buffers.scratch.Allocate(*this, MaxThreads());
  call.ForKeyHeads([&](int64_t first, int chunk) { ForwardPart(call, first, buffers, chunk, to); });
}

void CpuKernels::AddAttention(const Attention& attention, const AttentionSums& more,
                              const AttentionSums& to) {
  Span span(this, {more.largest, more.sums, more.outputs}, {to.largest, to.sums, to.outputs});
  ForSequences(attention, more, [&](const Attended& added, int64_t time, int64_t place) {
    const Attended sum = AttendedAt(attention, to, place);
    for (int64_t t = 0; t < time; ++t) {
      if (added.sum[t] == 0) continue;  // sees nothing there
      cpu::Merge(added, t, t + 1, attention.head_width, ScaleOf(attention), sum);
    }
  });
}

void CpuKernels::FinishAttention(const Attention& attention, const AttentionSums& sums,
                                 const Tensor& y, const Tensor& log_sum_exp) {
  Span span(this, {sums.largest, sums.sums}, {sums.outputs, y, log_sum_exp});
  ForSequences(attention, sums, [&](const Attended& all, int64_t time, int64_t place) {
    const int64_t width = attention.head_width;
    for (int64_t t = 0; t < time; ++t) {
      float* output = all.output.At(t);
      for (int64_t d = 0; d < width; ++d) output[d] /= all.sum[t];
      cpu::StoreFloats(output, output - sums.outputs.data<float>(), width, y);
      log_sum_exp.data<float>()[place * time + t] =
          all.largest[t] * ScaleOf(attention) + cpu::Log(all.sum[t]);
    }
  });
}

void CpuKernels::AttentionOfPartBackward(const Attention& attention, const AttentionPart& part,
                                         const Tensor& queries, const Tensor& keys, const Tensor& y,
                                         const Tensor& log_sum_exp, const Tensor& dy,
                                         const Tensor& dqueries, const Tensor& dkeys) {
  Span span(this, {queries, keys, y, log_sum_exp, dy}, {dqueries, dkeys});
  const PartCall call(attention, part, queries, keys, instructions_);
  PartBackwardBuffers buffers(call);
  buffers.scratch.Allocate(*this, MaxThreads());
  call.ForKeyHeads([&](int64_t first, int chunk) {
    BackwardPart(call, first, buffers, chunk, {y, log_sum_exp, dy, dqueries, dkeys});
  });
}

}  // namespace lockstep
