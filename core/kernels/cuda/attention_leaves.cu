// Causal self-attention between token leaves, for heads of any width and any dtype.

#include <cfloat>

#include "core/kernels/cuda/attention_head.cuh"
#include "core/kernels/cuda/attention_leaves.h"
#include "core/kernels/cuda/attention_rows.cuh"
#include "core/kernels/cuda/elements.cuh"
#include "core/kernels/cuda/reduce.cuh"

namespace lockstep::cuda {
namespace {

// One leaf of queries and one of keys, of one sample (attention_rows.cuh). Rows are places of their
// leaf.
struct TwoLeaves {
  TokenOrder order;
  Head head;  // with the time of the whole sample
  Array queries, keys;
  int64_t query_count, key_count;
  LeafRows query_rows, key_rows;
  int64_t query_leaf, key_leaf;

  // Block (anything, head, leaf * samples + sample). The leaf of the blocks is one of the queries';
  // or, with kOfKeys, the leaf is one of the keys', and so is the head.
  template <bool kOfKeys>
  static __device__ TwoLeaves OfBlock(const LeafCall& call, int64_t other_leaf) {
    const TokenOrder& order = call.order;
    const auto leaf = static_cast<int64_t>(blockIdx.z) / order.samples;
    TwoLeaves two = {.order = order,
                     .head = Head(call.attention, order.time),
                     .queries = call.queries.data,
                     .keys = call.keys.data,
                     .query_count = order.leaf_time(),
                     .key_count = order.leaf_time(),
                     .query_rows = call.queries,
                     .key_rows = call.keys,
                     .query_leaf = kOfKeys ? other_leaf : call.queries.first_leaf + leaf,
                     .key_leaf = kOfKeys ? call.keys.first_leaf + leaf : other_leaf};
    two.head.batch = static_cast<int>(blockIdx.z % order.samples);
    if (kOfKeys) two.head.key_head = static_cast<int>(blockIdx.y);
    return two;
  }

  __device__ SeenKeys SeenBy(int64_t query) const {
    const int64_t position = order.PositionOf(query_leaf, query);
    return {order.VisibleOf(key_leaf, head.FirstKeyOf(position) - 1),
            order.VisibleOf(key_leaf, position)};
  }
  __device__ float DropoutOf(int64_t query, int64_t key) const {
    return head.DropoutOf(query_leaf * query_count + query, key_leaf * key_count + key);
  }

  // The number of a row among those of the call's queries, or keys.
  __device__ int64_t QueryRow(int64_t t) const {
    return order.RowOf(query_leaf - query_rows.first_leaf, head.batch, t);
  }
  __device__ int64_t KeyRow(int64_t t) const {
    return order.RowOf(key_leaf - key_rows.first_leaf, head.batch, t);
  }
  __device__ int64_t QueryAt(int64_t t) const {
    return QueryRow(t) * query_rows.row + query_rows.column + head.head * head.width();
  }
  __device__ int64_t KeyAt(int64_t t) const {
    return KeyRow(t) * key_rows.row + key_rows.column + head.key_head * head.width();
  }
  __device__ int64_t ValueAt(int64_t t) const { return KeyAt(t) + head.key_width; }
  __device__ int64_t OutputAt(int64_t t) const {
    return QueryRow(t) * head.query_width + head.head * head.width();
  }
  __device__ int64_t SumsAt(int64_t t) const {
    const int64_t sequence = (query_leaf - query_rows.first_leaf) * order.samples + head.batch;
    return (sequence * head.attention.heads + head.head) * query_count + t;
  }
};

// Block (tile of queries, head, leaf * samples + sample).
__global__ void AttendKernel(LeafCall call, int64_t key_leaf, LeafSums to) {
  extern __shared__ float shared[];
  const TwoLeaves two = TwoLeaves::OfBlock<false>(call, key_leaf);
  const int64_t first = int64_t{blockIdx.x} * kTile;
  RowSums sums;
  Attend(two, 1, two.head.scale, first, shared, sums);
  const Array outputs = {to.outputs, DType::kF32};
#pragma unroll
  for (int r = 0; r < kRows; ++r) {
    const int64_t query = first + static_cast<int>(threadIdx.x) / kWarp * kRows + r;
    if (query >= two.query_count) continue;
    StoreSegments(sums.output[r], 1.0f, two.head.width(), two.OutputAt(query), outputs);
    if (threadIdx.x % kWarp == 0) {
      const SeenKeys seen = two.SeenBy(query);
      to.largest[two.SumsAt(query)] = seen.first < seen.end ? sums.largest[r] : -FLT_MAX;
      to.sums[two.SumsAt(query)] = sums.sum[r];
    }
  }
}

// A warp for each query. Block (queries, head, sequence).
__global__ void AddKernel(Attention attention, int64_t time, LeafSums more, LeafSums to) {
  const Head head(attention, time);
  const int64_t t = int64_t{blockIdx.x} * kWarps + threadIdx.x / kWarp, at = head.InSums(t);
  if (t >= time) return;
  const float sum_of_more = more.sums[at];
  if (sum_of_more == 0) return;  // sees nothing there
  const float sum = to.sums[at], largest_here = to.largest[at], largest_there = more.largest[at];
  const float largest = fmaxf(largest_here, largest_there);
  const float factor = expf((largest_here - largest) * head.scale);
  const float factor_of_more = expf((largest_there - largest) * head.scale);
  for (int c = threadIdx.x % kWarp; c < head.width(); c += kWarp) {
    float& output = to.outputs[head.InY(t) + c];
    output = fmaf(more.outputs[head.InY(t) + c], factor_of_more, output * factor);
  }
  __syncwarp();  // all lanes have read
  if (threadIdx.x % kWarp != 0) return;
  to.largest[at] = largest;
  to.sums[at] = fmaf(sum_of_more, factor_of_more, sum * factor);
}

// A warp for each query. Block (queries, head, sequence).
__global__ void FinishKernel(Attention attention, int64_t time, LeafSums sums, Array y,
                             float* log_sum_exp) {
  const Head head(attention, time);
  const int64_t t = int64_t{blockIdx.x} * kWarps + threadIdx.x / kWarp, at = head.InSums(t);
  if (t >= time) return;
  const float sum = sums.sums[at];
  for (int c = threadIdx.x % kWarp; c < head.width(); c += kWarp) {
    StoreOne(y, head.InY(t) + c, sums.outputs[head.InY(t) + c] / sum);
  }
  if (threadIdx.x % kWarp == 0) log_sum_exp[at] = sums.largest[at] * head.scale + logf(sum);
}

// What a row without any pair gets: a sum that changes no other.
template <int kCount>
__device__ void FillEmpty(float (&row)[kCount]) {
#pragma unroll
  for (int i = 0; i < kCount; ++i) row[i] = -0.0f;
}

// Block (tile of queries, head, leaf * samples + sample).
__global__ void __launch_bounds__(kRowThreads, 2)
    QueryGradientsKernel(LeafCall call, int64_t key_leaf, LeafGradients from, Array dqueries) {
  extern __shared__ float shared[];
  const TwoLeaves two = TwoLeaves::OfBlock<false>(call, key_leaf);
  const int64_t first = int64_t{blockIdx.x} * kTile;
  RowGradients gradients;
  AttendBackward<false>(two, from.log_sum_exp, from.dy, from.products, first, shared, gradients);
#pragma unroll
  for (int r = 0; r < kRows; ++r) {
    const int64_t query = first + static_cast<int>(threadIdx.x) / kWarp * kRows + r;
    if (query >= two.query_count) continue;
    const SeenKeys seen = two.SeenBy(query);
    if (seen.first >= seen.end) FillEmpty(gradients.a[r]);
    StoreSegments(gradients.a[r], two.head.scale, two.head.width(), two.OutputAt(query), dqueries);
  }
}

// Block (tile of keys, head of keys, leaf * samples + sample).
__global__ void KeyGradientsKernel(LeafCall call, int64_t query_leaf, LeafGradients from,
                                   Array dkeys) {
  extern __shared__ float shared[];
  const TwoLeaves two = TwoLeaves::OfBlock<true>(call, query_leaf);
  const Head& head = two.head;
  const int64_t first = int64_t{blockIdx.x} * kTile;
  RowGradients gradients;
  AttendBackward<true>(two, from.log_sum_exp, from.dy, from.products, first, shared, gradients);
  const int64_t seen = two.SeenBy(two.query_count - 1).end;  // by the last query, or the others
#pragma unroll
  for (int r = 0; r < kRows; ++r) {
    const int64_t key = first + static_cast<int>(threadIdx.x) / kWarp * kRows + r;
    if (key >= two.key_count) continue;
    if (key >= seen) {
      FillEmpty(gradients.a[r]);
      FillEmpty(gradients.b[r]);
    }
    const int64_t at = two.KeyRow(key) * 2 * head.key_width + head.key_head * head.width();
    StoreSegments(gradients.a[r], head.scale, head.width(), at, dkeys);
    StoreSegments(gradients.b[r], 1.0f, head.width(), at + head.key_width, dkeys);
  }
}

// Starts a kernel of blocks (tile of rows, head, leaf * samples + sample).
template <typename... Parameters, typename... Arguments>
cudaError_t Launch(void (*kernel)(Parameters...), cudaStream_t stream, const LeafCall& call,
                   int64_t heads, int64_t leaves, int tiles, const Arguments&... arguments) {
  const size_t shared = SharedBytes(tiles, call.attention.head_width);
  const cudaError_t error = AllowShared(kernel, shared);
  if (error != cudaSuccess) return error;
  const dim3 blocks = RowBlocks(heads, leaves * call.order.samples, call.order.leaf_time(), kTile);
  kernel<<<blocks, kRowThreads, shared, stream>>>(call, arguments...);
  return cudaGetLastError();
}

}  // namespace

cudaError_t AttendToLeaf(cudaStream_t stream, const LeafCall& call, int64_t key_leaf, LeafSums to) {
  return Launch(AttendKernel, stream, call, call.attention.heads, call.queries.leaves,
                kForwardTiles, key_leaf, to);
}

cudaError_t AddLeafSums(cudaStream_t stream, const Attention& attention, int64_t sequences,
                        int64_t leaf_time, LeafSums more, LeafSums to) {
  const dim3 blocks = RowBlocks(attention.heads, sequences, leaf_time, kWarps);
  AddKernel<<<blocks, kRowThreads, 0, stream>>>(attention, leaf_time, more, to);
  return cudaGetLastError();
}

cudaError_t FinishLeafSums(cudaStream_t stream, const Attention& attention, int64_t sequences,
                           int64_t leaf_time, LeafSums sums, Array y, float* log_sum_exp) {
  const dim3 blocks = RowBlocks(attention.heads, sequences, leaf_time, kWarps);
  FinishKernel<<<blocks, kRowThreads, 0, stream>>>(attention, leaf_time, sums, y, log_sum_exp);
  return cudaGetLastError();
}

cudaError_t QueryGradientsOfLeaf(cudaStream_t stream, const LeafCall& call, int64_t key_leaf,
                                 const LeafGradients& from, Array dqueries) {
  return Launch(QueryGradientsKernel, stream, call, call.attention.heads, call.queries.leaves,
                kBackwardTiles, key_leaf, from, dqueries);
}

cudaError_t KeyGradientsOfLeaf(cudaStream_t stream, const LeafCall& call, int64_t query_leaf,
                               const LeafGradients& from, Array dkeys) {
  return Launch(KeyGradientsKernel, stream, call, call.attention.heads_of_keys(), call.keys.leaves,
                kBackwardTiles, query_leaf, from, dkeys);
}

}  // namespace lockstep::cuda
