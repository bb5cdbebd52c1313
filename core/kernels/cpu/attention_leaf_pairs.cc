#include "core/kernels/cpu/attention_leaf_pairs.h"

#include <algorithm>
#include <cmath>
#include <cstdint>

#include "core/kernels/cpu/tile_gemm.h"
#include "core/kernels/cpu/vector_math.h"

namespace lockstep::cpu {

PairBuffers::PairBuffers(const LeafCall& call, Direction direction)
    : leaf_time(call.order.leaf_time()),
      width(call.attention.head_width),
      tile_row(PaddedToVectors(leaf_time) + PaddedToVectors(1)),
      operand(std::max(PackedBlocksSize(leaf_time, call.order.chunk(), width),
                       PackedRightSize(leaf_time, width))),
      is_copied(call.qkv.dtype() != DType::kF32),
      tile(scratch.Add(kAttentionTile * tile_row)),
      factors(scratch.Add(PaddedToVectors(leaf_time))),
      keys(scratch.Add(call.key_leaves * operand)),
      values(scratch.Add(call.key_leaves * operand)) {
  if (direction == Direction::kForward) return;
  dtile = scratch.Add(kAttentionTile * tile_row);
  left = scratch.Add(PackedLeftSize(leaf_time, kAttentionTile));
  key_steps = scratch.Add(call.key_leaves * operand);
}

// Adds what further keys give to queries [first, end). The tree's only rule.
void Merge(const Attended& more, int64_t first, int64_t end, int64_t width, float scale,
           const Attended& to) {
  for (int64_t i = first; i < end; ++i) {
    const float largest = std::max(to.largest[i], more.largest[i]);
    const float factor = Exp((to.largest[i] - largest) * scale);
    const float factor_of_more = Exp((more.largest[i] - largest) * scale);
    to.largest[i] = largest;
    to.sum[i] = std::fma(more.sum[i], factor_of_more, to.sum[i] * factor);
    float* output = to.output.At(i);
    const float* added = more.output.At(i);
    for (int64_t d = 0; d < width; ++d) {
      output[d] = std::fma(added[d], factor_of_more, output[d] * factor);
    }
  }
}

BackwardPairBuffers::BackwardPairBuffers(const LeafCall& call)
    : PairBuffers(call, Direction::kBackward),
      query_copy(AddCopy(1)),
      key_copy(AddCopy(1)),
      value_copy(AddCopy(1)),
      output_copy(AddCopy(1)),
      doutput_copy(AddCopy(1)),
      dquery_copy(AddCopy(1)),
      products(scratch.Add(leaf_time)),
      packed_queries(scratch.Add(operand)),
      packed_doutputs(scratch.Add(operand)),
      dqueries(scratch.Add(call.slots.last() * leaf_time * width)) {}

QueryLeaf LoadQueries(const LeafCall& call, const AttentionHead& head, const Tensor& y,
                      const Tensor& log_sum_exp, const Tensor& dy,
                      const BackwardPairBuffers& buffers, int chunk) {
  const int64_t width = buffers.width, packed_row = PaddedToVectors(width);
  const auto at = [&](int64_t buffer) { return buffers.scratch.At(chunk, buffer); };
  const auto load = [&](const Tensor& tensor, int64_t offset, int64_t row, int64_t copy) {
    return HeadRows(head, tensor, offset, row, at(copy)).Load();
  };
  const FloatRows outputs = load(y, head.output(), head.y_row(), buffers.output_copy);
  const QueryLeaf queries = {
      .queries = load(call.qkv, head.query(), head.row, buffers.query_copy),
      .doutputs = load(dy, head.output(), head.y_row(), buffers.doutput_copy),
      .packed_queries = at(buffers.packed_queries),
      .packed_doutputs = at(buffers.packed_doutputs),
      .log_sum_exp = log_sum_exp.data<float>() + head.sums(),
      .products = at(buffers.products)};
  for (int64_t t = 0; t < head.time; ++t) {
    at(buffers.products)[t] = SoftmaxRowProduct(outputs.At(t), queries.doutputs.At(t), width);
  }
  const int64_t chunk_time = call.order.chunk();
  for (int64_t begin = 0; begin < head.time; begin += chunk_time) {
    for (int64_t t = 0; t < chunk_time; t += kAttentionTile) {
      const int64_t first = begin + t, rows = std::min(kAttentionTile, chunk_time - t);
      PackRight({queries.queries.At(first), queries.queries.stride}, rows, width,
                at(buffers.packed_queries) + first * packed_row);
      PackRight({queries.doutputs.At(first), queries.doutputs.stride}, rows, width,
                at(buffers.packed_doutputs) + first * packed_row);
    }
  }
  return queries;
}

}  // namespace lockstep::cpu
