// Causal self-attention of whole sequences. These kernels take any width and dtype; where tensor
// cores can, they compute instead (attention_mma.h).

#include "core/kernels/cuda/attention.h"
#include "core/kernels/cuda/attention_head.cuh"
#include "core/kernels/cuda/attention_mma.h"
#include "core/kernels/cuda/attention_rows.cuh"
#include "core/kernels/cuda/elements.cuh"
#include "core/kernels/cuda/reduce.cuh"

namespace lockstep::cuda {
namespace {

// All queries and keys of a sequence (attention_rows.cuh).
struct Sequence {
  Head head;
  Array queries, keys;  // qkv
  int64_t query_count, key_count;

  __device__ Sequence(const Attention& attention, int64_t time, const Array& qkv)
      : head(attention, time), queries(qkv), keys(qkv), query_count(time), key_count(time) {}

  __device__ int64_t QueryAt(int64_t t) const { return head.InQkv(0, t); }
  __device__ int64_t KeyAt(int64_t t) const { return head.InQkv(1, t); }
  __device__ int64_t ValueAt(int64_t t) const { return head.InQkv(2, t); }
  __device__ int64_t OutputAt(int64_t t) const { return head.InY(t); }
  __device__ int64_t SumsAt(int64_t t) const { return head.InSums(t); }
  __device__ SeenKeys SeenBy(int64_t query) const { return {head.FirstKeyOf(query), query + 1}; }
  __device__ float DropoutOf(int64_t query, int64_t key) const {
    return head.DropoutOf(query, key);
  }
};

// Block (tile of queries, head, sequence).
__global__ void ForwardKernel(Attention attention, int64_t time, Array qkv, Array y,
                              float* log_sum_exp) {
  extern __shared__ float shared[];
  const Sequence sequence(attention, time, qkv);
  const Head& head = sequence.head;
  const int64_t first = int64_t{blockIdx.x} * kTile;
  RowSums sums;
  Attend(sequence, head.scale, 1, first, shared, sums);
#pragma unroll
  for (int r = 0; r < kRows; ++r) {
    const int64_t query = first + static_cast<int>(threadIdx.x) / kWarp * kRows + r;
    if (query >= time) continue;
    StoreSegments(sums.output[r], 1.0f / sums.sum[r], head.width(), head.InY(query), y);
    if (threadIdx.x % kWarp == 0) {
      log_sum_exp[head.InSums(query)] = sums.largest[r] + logf(sums.sum[r]);
    }
  }
}

// A warp for each row.
__global__ void ProductsKernel(Attention attention, int64_t time, Array y, Array dy,
                               float* products) {
  const Head head(attention, time);
  const int64_t t = int64_t{blockIdx.x} * kWarps + threadIdx.x / kWarp;
  if (t >= time) return;
  float sum = 0;
  for (int c = threadIdx.x % kWarp; c < head.width(); c += kWarp) {
    sum = fmaf(LoadOne(y, head.InY(t) + c), LoadOne(dy, head.InY(t) + c), sum);
  }
  sum = WarpReduce(sum, Plus{});
  if (threadIdx.x % kWarp == 0) products[head.InSums(t)] = sum;
}

// Writes the gradients of queries, or of keys and values. Block (tile of rows, head of the rows,
// sequence).
template <bool kOfKeys>
__global__ void BackwardKernel(Attention attention, int64_t time, Array qkv,
                               const float* log_sum_exp, Array dy, const float* products,
                               Array dqkv) {
  extern __shared__ float shared[];
  Sequence sequence(attention, time, qkv);
  const Head& head = sequence.head;
  if (kOfKeys) sequence.head.key_head = static_cast<int>(blockIdx.y);
  const int64_t first = int64_t{blockIdx.x} * kTile;
  RowGradients gradients;
  AttendBackward<kOfKeys>(sequence, log_sum_exp, dy, products, first, shared, gradients);
#pragma unroll
  for (int r = 0; r < kRows; ++r) {
    const int64_t t = first + static_cast<int>(threadIdx.x) / kWarp * kRows + r;
    if (t >= time) continue;
    StoreSegments(gradients.a[r], head.scale, head.width(), head.InQkv(kOfKeys ? 1 : 0, t), dqkv);
    if constexpr (kOfKeys) {
      StoreSegments(gradients.b[r], 1.0f, head.width(), head.InQkv(2, t), dqkv);
    }
  }
}

}  // namespace

int64_t AttentionSharedBytes(int64_t head_width) {
  return static_cast<int64_t>(SharedBytes(kBackwardTiles, head_width));
}

cudaError_t AttentionForward(cudaStream_t stream, Attention attention, int64_t batch, int64_t time,
                             Array qkv, Array y, float* log_sum_exp) {
  if (FitsTensorCores(attention, time, {qkv, y})) {
    return TensorCoreAttentionForward(stream, attention, batch, time, qkv, y, log_sum_exp);
  }
  const size_t shared = SharedBytes(kForwardTiles, attention.head_width);
  const cudaError_t error = AllowShared(ForwardKernel, shared);
  if (error != cudaSuccess) return error;
  const dim3 blocks = RowBlocks(attention.heads, batch, time, kTile);
  ForwardKernel<<<blocks, kRowThreads, shared, stream>>>(attention, time, qkv, y, log_sum_exp);
  return cudaGetLastError();
}

cudaError_t AttentionProducts(cudaStream_t stream, Attention attention, int64_t batch, int64_t time,
                              Array y, Array dy, float* products) {
  const dim3 blocks = RowBlocks(attention.heads, batch, time, kWarps);
  ProductsKernel<<<blocks, kRowThreads, 0, stream>>>(attention, time, y, dy, products);
  return cudaGetLastError();
}

cudaError_t AttentionBackward(cudaStream_t stream, Attention attention, int64_t batch, int64_t time,
                              Array qkv, Array y, const float* log_sum_exp, Array dy,
                              float* products, Array dqkv) {
  if (FitsTensorCores(attention, time, {qkv, y, dy, dqkv})) {
    return TensorCoreAttentionBackward(stream, attention, batch, time, qkv, y, log_sum_exp, dy,
                                       products, dqkv);
  }
  cudaError_t error = AttentionProducts(stream, attention, batch, time, y, dy, products);
  if (error != cudaSuccess) return error;
  const size_t shared = SharedBytes(kBackwardTiles, attention.head_width);
  error = AllowShared(BackwardKernel<false>, shared);
  if (error != cudaSuccess) return error;
  BackwardKernel<false>
      <<<RowBlocks(attention.heads, batch, time, kTile), kRowThreads, shared, stream>>>(
          attention, time, qkv, log_sum_exp, dy, products, dqkv);
  error = AllowShared(BackwardKernel<true>, shared);
  if (error != cudaSuccess) return error;
  const dim3 blocks = RowBlocks(attention.heads_of_keys(), batch, time, kTile);
  BackwardKernel<true><<<blocks, kRowThreads, shared, stream>>>(attention, time, qkv, log_sum_exp,
                                                                dy, products, dqkv);
  return cudaGetLastError();
}

}  // namespace lockstep::cuda
