// Attention in tiles of 32 x 32 logits, made again in backward from the stored log-sum-exp of each
// row (Dao et al., FlashAttention, 2022): nothing of size time x time is ever in memory. A lane has
// a column of a tile, a warp some of its rows. Sums are in fp32, in one order: the gradients of
// queries and of keys and values are two kernels, so that nothing is added across blocks. These
// kernels take any width and dtype; where tensor cores can, they compute instead (attention_mma.h).

#include "core/kernels/cuda/attention.h"
#include "core/kernels/cuda/attention_head.cuh"
#include "core/kernels/cuda/attention_mma.h"
#include "core/kernels/cuda/elements.cuh"
#include "core/kernels/cuda/reduce.cuh"

namespace lockstep::cuda {
namespace {

constexpr int kTile = kWarp;  // rows and columns
constexpr int kWarps = 8;
constexpr int kRows = kTile / kWarps;                             // of a warp
constexpr int kSegments = static_cast<int>(kWidestHead) / kWarp;  // of a head's width, a lane each

// Rows of a head in shared memory, kTile of them; one element more a row, so that a column's
// elements lie in different banks.
struct TileOfRows {
  float* data;
  int row;

  __device__ float* At(int r) const { return data + r * row; }
};

__device__ TileOfRows TileInShared(float* shared, int index, int width) {
  return {shared + index * kTile * (width + 1), width + 1};
}

size_t SharedBytes(int tiles, int64_t width) {
  return sizeof(float) * static_cast<size_t>(tiles * kTile * (width + 1));
}

constexpr int kForwardTiles = 3, kBackwardTiles = 4;

// Fills a tile with the rows first, first + 1, ... of `x`; row t begins at offset(t). Zeros behind
// the last one.
template <typename Offset>
__device__ void LoadTile(const Array& x, int64_t first, int64_t time, int width, Offset offset,
                         const TileOfRows& tile) {
  for (int i = threadIdx.x; i < kTile * width; i += blockDim.x) {
    const int r = i / width, c = i % width;
    tile.At(r)[c] = first + r < time ? LoadOne(x, offset(first + r) + c) : 0.0f;
  }
}

__device__ float Dot(const float* a, const float* b, int width) {
  float sum = 0;
  for (int c = 0; c < width; ++c) sum = fmaf(a[c], b[c], sum);
  return sum;
}

// sum[c] += factor_j rows[j][c] over the lanes j, of which each has its factor; a lane has the
// elements lane, lane + 32, ... of the sum.
__device__ void AddWeighted(float factor, const TileOfRows& rows, int width,
                            float (&sum)[kSegments]) {
  const int lane = threadIdx.x % kWarp;
  for (int j = 0; j < kWarp; ++j) {
    const float f = __shfl_sync(kAllLanes, factor, j);
#pragma unroll
    for (int s = 0; s < kSegments; ++s) {
      const int c = s * kWarp + lane;
      if (c < width) sum[s] = fmaf(f, rows.At(j)[c], sum[s]);
    }
  }
}

__device__ void StoreSegments(const float (&sum)[kSegments], float factor, int width, int64_t at,
                              const Array& out) {
#pragma unroll
  for (int s = 0; s < kSegments; ++s) {
    const int c = s * kWarp + static_cast<int>(threadIdx.x) % kWarp;
    if (c < width) StoreOne(out, at + c, sum[s] * factor);
  }
}

// Block (tile of queries, head, sequence).
__global__ void ForwardKernel(Attention attention, int64_t time, Array qkv, Array y,
                              float* log_sum_exp) {
  extern __shared__ float shared[];
  const Head head(attention, time);
  const int width = head.width(), lane = threadIdx.x % kWarp, warp = threadIdx.x / kWarp;
  const TileOfRows queries = TileInShared(shared, 0, width);
  const TileOfRows keys = TileInShared(shared, 1, width);
  const TileOfRows values = TileInShared(shared, 2, width);
  const auto offset = [&](int which) {
    return [&head, which](int64_t t) { return head.InQkv(which, t); };
  };
  const int64_t first = int64_t{blockIdx.x} * kTile;
  LoadTile(qkv, first, time, width, offset(0), queries);

  float largest[kRows], sum[kRows], result[kRows][kSegments] = {};
#pragma unroll
  for (int r = 0; r < kRows; ++r) {
    largest[r] = -INFINITY;
    sum[r] = 0;
  }
  // Documents ascend: no query of the tile sees an earlier key than the first one.
  const int64_t first_key = head.FirstKeyOf(first) / kTile * kTile;
  for (int64_t begin = first_key; begin <= first; begin += kTile) {
    __syncthreads();  // the tiles before have been read
    LoadTile(qkv, begin, time, width, offset(1), keys);
    LoadTile(qkv, begin, time, width, offset(2), values);
    __syncthreads();
#pragma unroll
    for (int r = 0; r < kRows; ++r) {
      const int row = warp * kRows + r;
      const int64_t query = first + row, key = begin + lane;
      if (query >= time) continue;  // the whole warp's
      const bool seen = key <= query && key >= head.FirstKeyOf(query);
      const float logit =
          seen ? Dot(queries.At(row), keys.At(lane), width) * head.scale : -INFINITY;
      const float above = fmaxf(largest[r], WarpReduce(logit, Larger{}));
      if (above == -INFINITY) continue;  // keys of earlier documents alone; the whole warp's
      const float shrink = expf(largest[r] - above);
      const float p = seen ? expf(logit - above) : 0.0f;
      largest[r] = above;
      sum[r] = sum[r] * shrink + WarpReduce(p, Plus{});
#pragma unroll
      for (int s = 0; s < kSegments; ++s) result[r][s] *= shrink;
      AddWeighted(seen ? p * head.DropoutOf(query, key) : 0.0f, values, width, result[r]);
    }
  }
#pragma unroll
  for (int r = 0; r < kRows; ++r) {
    const int64_t query = first + warp * kRows + r;
    if (query >= time) continue;
    StoreSegments(result[r], 1.0f / sum[r], width, head.InY(query), y);
    if (lane == 0) log_sum_exp[head.InSums(query)] = largest[r] + logf(sum[r]);
  }
}

// products[t] = y[t] . dy[t], which equals the sum over keys of probability times its gradient
// (FlashAttention, section B.4). A warp for each row.
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

// A block has a tile of rows and meets one tile of columns after the other. Rows are queries with
// their dy, columns keys with their values, and what is summed are the queries' gradients; or, with
// kOfKeys, the other way about, and the gradients of keys and values are summed, over the heads of
// queries in order that have them. Block (tile of rows, head of the rows, sequence).
template <bool kOfKeys>
__global__ void BackwardKernel(Attention attention, int64_t time, Array qkv,
                               const float* log_sum_exp, Array dy, const float* products,
                               Array dqkv) {
  extern __shared__ float shared[];
  Head head(attention, time);
  if (kOfKeys) head.key_head = static_cast<int>(blockIdx.y);
  const int width = head.width(), lane = threadIdx.x % kWarp, warp = threadIdx.x / kWarp;
  const TileOfRows row_a = TileInShared(shared, 0, width);  // queries or keys
  const TileOfRows row_b = TileInShared(shared, 1, width);  // dy or values
  const TileOfRows column_a = TileInShared(shared, 2, width);
  const TileOfRows column_b = TileInShared(shared, 3, width);
  const auto queries = [&](int64_t begin, const TileOfRows& a, const TileOfRows& b) {
    LoadTile(
        qkv, begin, time, width, [&](int64_t t) { return head.InQkv(0, t); }, a);
    LoadTile(
        dy, begin, time, width, [&](int64_t t) { return head.InY(t); }, b);
  };
  const auto keys = [&](int64_t begin, const TileOfRows& a, const TileOfRows& b) {
    LoadTile(
        qkv, begin, time, width, [&](int64_t t) { return head.InQkv(1, t); }, a);
    LoadTile(
        qkv, begin, time, width, [&](int64_t t) { return head.InQkv(2, t); }, b);
  };
  const int64_t first = int64_t{blockIdx.x} * kTile;
  kOfKeys ? keys(first, row_a, row_b) : queries(first, row_a, row_b);

  float sum_a[kRows][kSegments] = {}, sum_b[kRows][kSegments] = {};
  const int64_t begin = kOfKeys ? first : head.FirstKeyOf(first) / kTile * kTile;
  const int64_t end = kOfKeys ? time : first + 1;
  const int members = kOfKeys ? head.group() : 1;
  for (int member = 0; member < members; ++member) {
    if (kOfKeys) head.head = head.key_head * members + member;
    for (int64_t column_first = begin; column_first < end; column_first += kTile) {
      __syncthreads();  // the tiles before have been read
      kOfKeys ? queries(column_first, column_a, column_b) : keys(column_first, column_a, column_b);
      __syncthreads();
#pragma unroll
      for (int r = 0; r < kRows; ++r) {
        const int row = warp * kRows + r;
        const int64_t query = kOfKeys ? column_first + lane : first + row;
        const int64_t key = kOfKeys ? first + row : column_first + lane;
        float p = 0, slope = 0, dropout = 0;
        if (key <= query && query < time && key >= head.FirstKeyOf(query)) {
          const float logit = Dot(row_a.At(row), column_a.At(lane), width) * head.scale;
          p = expf(logit - log_sum_exp[head.InSums(query)]);
          dropout = head.DropoutOf(query, key);
          const float gradient = Dot(row_b.At(row), column_b.At(lane), width) * dropout;
          slope = p * (gradient - products[head.InSums(query)]);
        }
        AddWeighted(slope, column_a, width, sum_a[r]);
        if constexpr (kOfKeys) AddWeighted(p * dropout, column_b, width, sum_b[r]);
      }
    }
  }
#pragma unroll
  for (int r = 0; r < kRows; ++r) {
    const int64_t t = first + warp * kRows + r;
    if (t >= time) continue;
    StoreSegments(sum_a[r], head.scale, width, head.InQkv(kOfKeys ? 1 : 0, t), dqkv);
    if constexpr (kOfKeys) StoreSegments(sum_b[r], 1.0f, width, head.InQkv(2, t), dqkv);
  }
}

// Kernels have 48 KiB of shared memory unless they ask for more.
template <typename Kernel>
cudaError_t AllowShared(Kernel kernel, size_t bytes) {
  return cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                              static_cast<int>(bytes));
}

dim3 Blocks(int64_t heads, int64_t batch, int64_t rows, int64_t rows_of_block) {
  return dim3(static_cast<unsigned>(BlocksFor(rows, rows_of_block)), static_cast<unsigned>(heads),
              static_cast<unsigned>(batch));
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
  ForwardKernel<<<Blocks(attention.heads, batch, time, kTile), kWarps * kWarp, shared, stream>>>(
      attention, time, qkv, y, log_sum_exp);
  return cudaGetLastError();
}

cudaError_t AttentionBackward(cudaStream_t stream, Attention attention, int64_t batch, int64_t time,
                              Array qkv, Array y, const float* log_sum_exp, Array dy,
                              float* products, Array dqkv) {
  if (FitsTensorCores(attention, time, {qkv, y, dy, dqkv})) {
    return TensorCoreAttentionBackward(stream, attention, batch, time, qkv, y, log_sum_exp, dy,
                                       products, dqkv);
  }
  ProductsKernel<<<Blocks(attention.heads, batch, time, kWarps), kWarps * kWarp, 0, stream>>>(
      attention, time, y, dy, products);
  const size_t shared = SharedBytes(kBackwardTiles, attention.head_width);
  cudaError_t error = AllowShared(BackwardKernel<false>, shared);
  if (error != cudaSuccess) return error;
  BackwardKernel<false>
      <<<Blocks(attention.heads, batch, time, kTile), kWarps * kWarp, shared, stream>>>(
          attention, time, qkv, log_sum_exp, dy, products, dqkv);
  error = AllowShared(BackwardKernel<true>, shared);
  if (error != cudaSuccess) return error;
  const dim3 blocks = Blocks(attention.heads_of_keys(), batch, time, kTile);
  BackwardKernel<true><<<blocks, kWarps * kWarp, shared, stream>>>(attention, time, qkv,
                                                                   log_sum_exp, dy, products, dqkv);
  return cudaGetLastError();
}

}  // namespace lockstep::cuda
