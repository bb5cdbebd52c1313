// Causal self-attention between token leaves (core/base/token_order.h): what the queries of some
// leaves get from the keys of one leaf, the gradients between one leaf and some, and the sums of
// two nodes of the trees over leaves (docs/numerics.md, "Token leaves"). All of it depends on pairs
// of leaves alone, and not on who holds other leaves. Shapes and dtypes as in
// core/kernels/kernels.h.

#pragma once

#include <cstdint>

#include "core/base/token_order.h"
#include "core/kernels/cuda/array.h"
#include "core/kernels/options.h"
#include "cuda_runtime_api.h"

namespace lockstep::cuda {

// Rows of consecutive leaves, [leaves * samples, leaf time, ...].
struct LeafRows {
  Array data;
  int64_t first_leaf = 0, leaves = 1;
  int64_t row = 0;     // elements of a row
  int64_t column = 0;  // of a row, where the queries, or the keys, begin; values follow the keys
};

// The leaves that meet.
struct LeafCall {
  Attention attention;  // the documents lie in the GPU's memory
  TokenOrder order;     // of all tokens
  LeafRows queries, keys;
};

// AttentionSums in the GPU's memory, of the queries of a call.
struct LeafSums {
  float* largest;
  float* sums;
  float* outputs;
};

// Writes what the call's queries have from leaf `key_leaf` of its keys.
cudaError_t AttendToLeaf(cudaStream_t stream, const LeafCall& call, int64_t key_leaf, LeafSums to);

// Kernels::AddAttention for `sequences` = leaves * samples.
cudaError_t AddLeafSums(cudaStream_t stream, const Attention& attention, int64_t sequences,
                        int64_t leaf_time, LeafSums more, LeafSums to);

// Kernels::FinishAttention, which leaves `sums` as they are.
cudaError_t FinishLeafSums(cudaStream_t stream, const Attention& attention, int64_t sequences,
                           int64_t leaf_time, LeafSums sums, Array y, float* log_sum_exp);

// What backward knows of the call's queries: of each, log_sum_exp and AttentionProducts.
struct LeafGradients {
  const float* log_sum_exp;
  const float* products;
  Array dy;
};

// Writes the gradients of the call's queries that leaf `key_leaf` of its keys gives: dqueries
// [query leaves * samples, leaf time, width of all queries].
cudaError_t QueryGradientsOfLeaf(cudaStream_t stream, const LeafCall& call, int64_t key_leaf,
                                 const LeafGradients& from, Array dqueries);

// Writes the gradients of the call's keys and values that leaf `query_leaf` of its queries gives:
// dkeys [key leaves * samples, leaf time, 2 * width of all keys].
cudaError_t KeyGradientsOfLeaf(cudaStream_t stream, const LeafCall& call, int64_t query_leaf,
                               const LeafGradients& from, Array dkeys);

}  // namespace lockstep::cuda
