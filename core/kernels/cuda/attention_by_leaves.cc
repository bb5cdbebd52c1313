// Causal self-attention over token leaves: all of them, or those of a rank that divides sequences
// with others. Both add up the same pairs of leaves in the same order, so that partial results have
// the bits of the same nodes of the whole.

#include <cstdint>
#include <utility>
#include <vector>

#include "core/base/sum_tree.h"
#include "core/base/token_order.h"
#include "core/cuda/error.h"
#include "core/kernels/cuda/attention.h"
#include "core/kernels/cuda/attention_call.h"
#include "core/kernels/cuda/attention_leaves.h"
#include "core/kernels/cuda/cuda_kernels.h"
#include "core/kernels/cuda/span.h"
#include "glog/logging.h"

namespace lockstep {

using cuda::LeafCall;
using cuda::LeafSums;
using cuda::Of;

namespace {

// Sums what the leaves of `run`, a node of the tree over `leaves` leaves, give. compute(leaf, slot)
// writes a leaf's value into slot `slot`; add(slot, to) adds a slot to the one below it. The sum is
// left in slot 0.
template <typename Compute, typename Add>
void SumAlongTree(int64_t leaves, const Range& run, Compute&& compute, Add&& add) {
  TreeStack stack(leaves, run.first);
  for (int64_t leaf = run.first; leaf < run.first + run.count; ++leaf) {
    auto slot = static_cast<int64_t>(stack.nodes().size());
    compute(leaf, slot);
    for (int64_t merged = stack.Push(); merged > 0; --merged, --slot) add(slot, slot - 1);
  }
  CHECK_EQ(stack.nodes().size(), 1u) << run.count << " leaves from leaf " << run.first
                                     << " on are no node of a tree over " << leaves;
}

// The values of a sum along the tree: the result, and further ones that are made when they are
// needed.
template <typename Value>
class Slots {
 public:
  explicit Slots(Value result) : values_{std::move(result)} {}

  template <typename Make>
  const Value& At(int64_t slot, Make&& make) {
    while (static_cast<int64_t>(values_.size()) <= slot) values_.push_back(make());
    return values_[slot];
  }
  const Value& operator[](int64_t slot) const { return values_[slot]; }

 private:
  std::vector<Value> values_;
};

// What a call computes for a rank that holds the leaves of `part`. Tensors as AttentionOfPart has
// them, but for keys, which begin at column `key_column` of the rows of `keys`.
class PartCall {
 public:
  PartCall(Kernels& kernels, cudaStream_t stream, const Attention& attention,
           const AttentionPart& part, const Tensor& queries, const Tensor& keys, int64_t key_column)
      : kernels_(kernels),
        stream_(stream),
        part_(part),
        order_({.samples = queries.shape()[0] / part.queries.count,
                .time = queries.shape()[1] * part.leaves,
                .leaves = part.leaves}),
        attention_(kernels, attention, order_.samples, order_.time) {
    CHECK(order_.leaves > 1 && order_.Fits()) << order_.leaves << " leaves of " << queries.shape();
    CHECK_EQ(queries.shape()[0], part.queries.count * order_.samples) << queries.shape();
    CHECK_EQ(keys.shape()[0], part.keys.count * order_.samples) << keys.shape();
    CHECK_EQ(keys.shape()[1], order_.leaf_time()) << keys.shape();
    CHECK_EQ(keys.shape()[2], key_column + 2 * attention.key_width()) << keys.shape();
    cuda::CheckAttention(attention, queries.shape()[0]);
    cuda::CheckAttention(attention, keys.shape()[0]);
    call_ = {.attention = attention_.attention(),
             .order = order_,
             .queries = {.data = Of(queries),
                         .first_leaf = part.queries.first,
                         .leaves = part.queries.count,
                         .row = queries.shape()[2]},
             .keys = {.data = Of(keys),
                      .first_leaf = part.keys.first,
                      .leaves = part.keys.count,
                      .row = keys.shape()[2],
                      .column = key_column}};
  }

  // Writes the node over the part's leaves of keys.
  void Forward(const AttentionSums& to) const {
    Slots<AttentionSums> slots(to);
    const auto make = [&] {
      return AttentionSums{.largest = Workspace(to.largest.shape(), DType::kF32),
                           .sums = Workspace(to.sums.shape(), DType::kF32),
                           .outputs = Workspace(to.outputs.shape(), DType::kF32)};
    };
    SumAlongTree(
        order_.leaves, part_.keys,
        [&](int64_t leaf, int64_t slot) {
          LS_CUDA(cuda::AttendToLeaf(stream_, call_, leaf, SumsOf(slots.At(slot, make))));
        },
        [&](int64_t slot, int64_t to_slot) {
          LS_CUDA(cuda::AddLeafSums(stream_, call_.attention, to.outputs.shape()[0],
                                    order_.leaf_time(), SumsOf(slots[slot]),
                                    SumsOf(slots[to_slot])));
        });
  }

  // What backward knows of the queries; `products` is scratch, a tensor like log_sum_exp.
  cuda::LeafGradients GradientsFrom(const Tensor& y, const Tensor& log_sum_exp, const Tensor& dy,
                                    const Tensor& products) const {
    LS_CUDA(cuda::AttentionProducts(stream_, call_.attention, y.shape()[0], order_.leaf_time(),
                                    Of(y), Of(dy), products.data<float>()));
    return {log_sum_exp.data<float>(), products.data<float>(), Of(dy)};
  }
  // Write one node over the leaves of keys, [query leaves * batch, leaf time, width of all
  // queries], and one over the leaves of queries, [key leaves * batch, leaf time, 2 * width of all
  // keys].
  void QueryGradients(const cuda::LeafGradients& from, const Tensor& dqueries) const {
    SumGradients(part_.keys, dqueries, [&](int64_t leaf, const Tensor& to) {
      LS_CUDA(cuda::QueryGradientsOfLeaf(stream_, call_, leaf, from, Of(to)));
    });
  }
  void KeyGradients(const cuda::LeafGradients& from, const Tensor& dkeys) const {
    SumGradients(part_.queries, dkeys, [&](int64_t leaf, const Tensor& to) {
      LS_CUDA(cuda::KeyGradientsOfLeaf(stream_, call_, leaf, from, Of(to)));
    });
  }

  static LeafSums SumsOf(const AttentionSums& sums) {
    return {sums.largest.data<float>(), sums.sums.data<float>(), sums.outputs.data<float>()};
  }

 private:
  Tensor Workspace(const Shape& shape, DType dtype) const {
    return kernels_.Empty(shape, dtype, MemoryClass::kWorkspace);
  }

  template <typename Compute>
  void SumGradients(const Range& run, const Tensor& result, Compute&& compute) const {
    Slots<Tensor> slots(result);
    SumAlongTree(
        order_.leaves, run,
        [&](int64_t leaf, int64_t slot) {
          compute(leaf, slots.At(slot, [&] { return Workspace(result.shape(), result.dtype()); }));
        },
        [&](int64_t slot, int64_t to) { kernels_.Add(slots[to], slots[slot], slots[to]); });
  }

  Kernels& kernels_;
  const cudaStream_t stream_;
  const AttentionPart part_;
  const TokenOrder order_;
  const cuda::AttentionOnGpu attention_;
  LeafCall call_;
};

// All leaves meet all leaves.
AttentionPart WholeOf(int64_t leaves) {
  return {.leaves = leaves, .queries = {0, leaves}, .keys = {0, leaves}};
}

void CheckPacked(const Attention& attention, const Tensor& qkv, int64_t leaves) {
  CHECK_EQ(qkv.shape()[2], attention.packed_width()) << qkv.shape();
  CHECK_EQ(qkv.shape()[0] % leaves, 0) << leaves << " leaves of " << qkv.shape();
}

}  // namespace

void CudaKernels::AttentionForwardByTokenLeaves(const Attention& attention, int64_t leaves,
                                                const Tensor& qkv, const Tensor& y,
                                                const Tensor& log_sum_exp) {
  Span span(this);
  CheckPacked(attention, qkv, leaves);
  if (qkv.elements() == 0) return;
  const AttentionSums sums = {.largest = Workspace(log_sum_exp.shape()),
                              .sums = Workspace(log_sum_exp.shape()),
                              .outputs = Workspace(y.shape())};
  PartCall(*this, stream(), attention, WholeOf(leaves), qkv, qkv, attention.query_width())
      .Forward(sums);
  FinishAttention(attention, sums, y, log_sum_exp);
}

void CudaKernels::AttentionBackwardByTokenLeaves(const Attention& attention, int64_t leaves,
                                                 const Tensor& qkv, const Tensor& y,
                                                 const Tensor& log_sum_exp, const Tensor& dy,
                                                 const Tensor& dqkv) {
  Span span(this);
  CheckPacked(attention, qkv, leaves);
  if (qkv.elements() == 0) return;
  const PartCall call(*this, stream(), attention, WholeOf(leaves), qkv, qkv,
                      attention.query_width());
  const Tensor products = Workspace(log_sum_exp.shape());
  const cuda::LeafGradients from = call.GradientsFrom(y, log_sum_exp, dy, products);
  {
    const Tensor dqueries = Workspace(y.shape(), dqkv.dtype());
    call.QueryGradients(from, dqueries);
    CopyColumns(dqueries, 0, attention.query_width(), dqkv, 0);
  }
  const int64_t width = 2 * attention.key_width();
  const Tensor dkeys = Workspace(qkv.shape().With(2, width), dqkv.dtype());
  call.KeyGradients(from, dkeys);
  CopyColumns(dkeys, 0, width, dqkv, attention.query_width());
}

void CudaKernels::AttentionOfPart(const Attention& attention, const AttentionPart& part,
                                  const Tensor& queries, const Tensor& keys,
                                  const AttentionSums& to) {
  Span span(this);
  if (queries.elements() == 0) return;
  PartCall(*this, stream(), attention, part, queries, keys, 0).Forward(to);
}

void CudaKernels::AddAttention(const Attention& attention, const AttentionSums& more,
                               const AttentionSums& to) {
  Span span(this);
  if (to.outputs.elements() == 0) return;
  LS_CUDA(cuda::AddLeafSums(stream(), attention, to.outputs.shape()[0], to.outputs.shape()[1],
                            PartCall::SumsOf(more), PartCall::SumsOf(to)));
}

void CudaKernels::FinishAttention(const Attention& attention, const AttentionSums& sums,
                                  const Tensor& y, const Tensor& log_sum_exp) {
  Span span(this);
  if (y.elements() == 0) return;
  LS_CUDA(cuda::FinishLeafSums(stream(), attention, y.shape()[0], y.shape()[1],
                               PartCall::SumsOf(sums), Of(y), log_sum_exp.data<float>()));
}

void CudaKernels::AttentionOfPartBackward(const Attention& attention, const AttentionPart& part,
                                          const Tensor& queries, const Tensor& keys,
                                          const Tensor& y, const Tensor& log_sum_exp,
                                          const Tensor& dy, const Tensor& dqueries,
                                          const Tensor& dkeys) {
  Span span(this);
  if (queries.elements() == 0) return;
  const PartCall call(*this, stream(), attention, part, queries, keys, 0);
  const Tensor products = Workspace(log_sum_exp.shape());
  const cuda::LeafGradients from = call.GradientsFrom(y, log_sum_exp, dy, products);
  call.KeyGradients(from, dkeys);
  const int64_t width = attention.query_width();
  if (dqueries.shape()[2] == width) {
    call.QueryGradients(from, dqueries);
    return;
  }
  const Tensor alone = Workspace(y.shape(), dqueries.dtype());
  call.QueryGradients(from, alone);
  CopyColumns(alone, 0, width, dqueries, 0);
}

}  // namespace lockstep
