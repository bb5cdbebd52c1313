// Attention of any width and dtype in tiles of 32 queries and 32 keys, with logits made again in
// backward from the stored log-sum-exp of each query (Dao et al., FlashAttention, 2022): nothing of
// size time x time is ever in memory. A lane has a column of a tile, a warp some of its rows. Sums
// are in fp32, in one order: the gradients of queries and of keys and values are sums of their own,
// so that nothing is added across blocks.
//
// A Meeting is what a block takes its rows from: one head's queries, and the keys and values that
// they meet, which are the whole sequence (attention.cu) or those of a leaf (attention_leaves.cu).
//
//   Head head;                        // of the queries, with its head of keys
//   Array queries, keys;              // the tensors that hold the rows; values lie in the latter
//   int64_t query_count, key_count;   // rows
//   int64_t QueryAt(t), KeyAt(t), ValueAt(t);  // where row t begins
//   int64_t OutputAt(t);              // the same in y and dy
//   int64_t SumsAt(t);                // the place of query t in numbers of each query
//   SeenKeys SeenBy(query);           // both ends ascend with the query
//   float DropoutOf(query, key);      // the factor of the probability

#pragma once

#include <cmath>
#include <cstdint>

#include "core/kernels/cuda/array.h"
#include "core/kernels/cuda/attention.h"  // kWidestHead
#include "core/kernels/cuda/attention_head.cuh"
#include "core/kernels/cuda/elements.cuh"
#include "core/kernels/cuda/reduce.cuh"
#include "cuda_runtime.h"

namespace lockstep::cuda {

constexpr int kTile = kWarp;  // rows and columns
constexpr int kWarps = 8;
constexpr int kRowThreads = kWarps * kWarp;                       // of a block
constexpr int kRows = kTile / kWarps;                             // of a warp
constexpr int kSegments = static_cast<int>(kWidestHead) / kWarp;  // of a head's width, a lane each

constexpr int kForwardTiles = 3, kBackwardTiles = 4;

// The keys that a query sees, by their number.
struct SeenKeys {
  int64_t first, end;

  __device__ bool Has(int64_t key) const { return first <= key && key < end; }
  __device__ bool HasAnyOf(int64_t begin, int64_t count) const {
    const int64_t from = first < begin ? begin : first;
    return from < end && from < begin + count;
  }
};

// Rows of a head in shared memory, kTile of them; one element more a row, so that a column's
// elements lie in different banks.
struct TileOfRows {
  float* data;
  int row;

  __device__ float* At(int r) const { return data + r * row; }
};

__device__ inline TileOfRows TileInShared(float* shared, int index, int width) {
  return {shared + index * kTile * (width + 1), width + 1};
}

inline size_t SharedBytes(int tiles, int64_t width) {
  return sizeof(float) * static_cast<size_t>(tiles * kTile * (width + 1));
}

// Fills a tile with the rows first, first + 1, ... of `x`; row t begins at offset(t). Zeros behind
// the last one.
template <typename Offset>
__device__ void LoadTile(const Array& x, int64_t first, int64_t count, int width, Offset offset,
                         const TileOfRows& tile) {
  for (int i = threadIdx.x; i < kTile * width; i += blockDim.x) {
    const int r = i / width, c = i % width;
    tile.At(r)[c] = first + r < count ? LoadOne(x, offset(first + r) + c) : 0.0f;
  }
}

template <typename Meeting>
__device__ void LoadQueries(const Meeting& meeting, int64_t first, const TileOfRows& tile) {
  LoadTile(
      meeting.queries, first, meeting.query_count, meeting.head.width(),
      [&](int64_t t) { return meeting.QueryAt(t); }, tile);
}

template <typename Meeting>
__device__ void LoadOutputGradients(const Meeting& meeting, const Array& dy, int64_t first,
                                    const TileOfRows& tile) {
  LoadTile(
      dy, first, meeting.query_count, meeting.head.width(),
      [&](int64_t t) { return meeting.OutputAt(t); }, tile);
}

template <typename Meeting>
__device__ void LoadKeysAndValues(const Meeting& meeting, int64_t first, const TileOfRows& keys,
                                  const TileOfRows& values) {
  const int width = meeting.head.width();
  LoadTile(
      meeting.keys, first, meeting.key_count, width, [&](int64_t t) { return meeting.KeyAt(t); },
      keys);
  LoadTile(
      meeting.keys, first, meeting.key_count, width, [&](int64_t t) { return meeting.ValueAt(t); },
      values);
}

__device__ inline float Dot(const float* a, const float* b, int width) {
  float sum = 0;
  for (int c = 0; c < width; ++c) sum = fmaf(a[c], b[c], sum);
  return sum;
}

// sum[c] += factor_j rows[j][c] over the lanes j, of which each has its factor; a lane has the
// elements lane, lane + 32, ... of the sum.
__device__ inline void AddWeighted(float factor, const TileOfRows& rows, int width,
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

__device__ inline void StoreSegments(const float (&sum)[kSegments], float factor, int width,
                                     int64_t at, const Array& out) {
#pragma unroll
  for (int s = 0; s < kSegments; ++s) {
    const int c = s * kWarp + static_cast<int>(threadIdx.x) % kWarp;
    if (c < width) StoreOne(out, at + c, sum[s] * factor);
  }
}

// What the rows of a warp have from keys: the largest logit; the sum of exponentials of what logits
// are below it; and the values times these and dropout's factors, summed. A query that sees no key
// has minus infinity and zeros.
struct RowSums {
  float largest[kRows], sum[kRows], output[kRows][kSegments];
};

// Computes RowSums of the queries first, first + 1, ... of a block. Logits are products of queries
// and keys times `logit_scale`; differences of logits times `exponent_scale` are exponents.
template <typename Meeting>
__device__ __forceinline__ void Attend(const Meeting& meeting, float logit_scale,
                                       float exponent_scale, int64_t first, float* shared,
                                       RowSums& to) {
  const int width = meeting.head.width();
  const int lane = threadIdx.x % kWarp, warp = threadIdx.x / kWarp;
  const TileOfRows queries = TileInShared(shared, 0, width);
  const TileOfRows keys = TileInShared(shared, 1, width);
  const TileOfRows values = TileInShared(shared, 2, width);
  LoadQueries(meeting, first, queries);
#pragma unroll
  for (int r = 0; r < kRows; ++r) {
    to.largest[r] = -INFINITY;
    to.sum[r] = 0;
#pragma unroll
    for (int s = 0; s < kSegments; ++s) to.output[r][s] = 0;
  }
  const int64_t behind = first + kTile < meeting.query_count ? first + kTile : meeting.query_count;
  const int64_t first_key = meeting.SeenBy(first).first / kTile * kTile;
  const int64_t end = meeting.SeenBy(behind - 1).end;
  for (int64_t begin = first_key; begin < end; begin += kTile) {
    __syncthreads();  // the tiles before have been read
    LoadKeysAndValues(meeting, begin, keys, values);
    __syncthreads();
#pragma unroll
    for (int r = 0; r < kRows; ++r) {
      const int row = warp * kRows + r;
      const int64_t query = first + row, key = begin + lane;
      if (query >= meeting.query_count) continue;  // the whole warp's
      const SeenKeys seen_keys = meeting.SeenBy(query);
      if (!seen_keys.HasAnyOf(begin, kTile)) continue;  // the whole warp's, too
      const bool seen = seen_keys.Has(key);
      const float logit =
          seen ? Dot(queries.At(row), keys.At(lane), width) * logit_scale : -INFINITY;
      const float above = fmaxf(to.largest[r], WarpReduce(logit, Larger{}));
      const float shrink = expf((to.largest[r] - above) * exponent_scale);
      const float p = seen ? expf((logit - above) * exponent_scale) : 0.0f;
      to.largest[r] = above;
      to.sum[r] = to.sum[r] * shrink + WarpReduce(p, Plus{});
#pragma unroll
      for (int s = 0; s < kSegments; ++s) to.output[r][s] *= shrink;
      AddWeighted(seen ? p * meeting.DropoutOf(query, key) : 0.0f, values, width, to.output[r]);
    }
  }
}

// Gradients of the rows of a warp: `a` of queries, or `a` of keys and `b` of values. `a` lacks the
// factor that scales logits.
struct RowGradients {
  float a[kRows][kSegments], b[kRows][kSegments];
};

// Computes RowGradients. A block has the rows first, first + 1, ..., and meets one tile of columns
// after the other. Rows are queries with their dy, columns keys with their values; or, with
// kOfKeys, the other way about, and the gradients are summed over the heads of queries, in order,
// that share the head of keys. products[t] = y[t] . dy[t], which equals the sum over keys of
// probability times its gradient (FlashAttention, section B.4).
template <bool kOfKeys, typename Meeting>
__device__ __forceinline__ void AttendBackward(Meeting meeting, const float* log_sum_exp,
                                               const Array& dy, const float* products,
                                               int64_t first, float* shared, RowGradients& to) {
  const int width = meeting.head.width();
  const int lane = threadIdx.x % kWarp, warp = threadIdx.x / kWarp;
  const TileOfRows row_a = TileInShared(shared, 0, width);  // queries or keys
  const TileOfRows row_b = TileInShared(shared, 1, width);  // dy or values
  const TileOfRows column_a = TileInShared(shared, 2, width);
  const TileOfRows column_b = TileInShared(shared, 3, width);
  const auto load = [&](bool are_keys, int64_t begin, const TileOfRows& a, const TileOfRows& b) {
    if (are_keys) {
      LoadKeysAndValues(meeting, begin, a, b);
    } else {
      LoadQueries(meeting, begin, a);
      LoadOutputGradients(meeting, dy, begin, b);
    }
  };
  // The last query of a tile sees the furthest key.
  const auto end_of_seen = [&](int64_t queries) {
    const int64_t behind = queries + kTile;
    return meeting.SeenBy((behind < meeting.query_count ? behind : meeting.query_count) - 1).end;
  };
  load(kOfKeys, first, row_a, row_b);
#pragma unroll
  for (int r = 0; r < kRows; ++r) {
#pragma unroll
    for (int s = 0; s < kSegments; ++s) to.a[r][s] = to.b[r][s] = 0;
  }
  const int64_t begin = kOfKeys ? 0 : meeting.SeenBy(first).first / kTile * kTile;
  const int64_t end = kOfKeys ? meeting.query_count : end_of_seen(first);
  const int members = kOfKeys ? meeting.head.group() : 1;
  for (int member = 0; member < members; ++member) {
    if (kOfKeys) meeting.head.head = meeting.head.key_head * members + member;
    for (int64_t column_first = begin; column_first < end; column_first += kTile) {
      if (kOfKeys && end_of_seen(column_first) <= first) continue;  // the whole block's
      __syncthreads();  // the tiles before have been read
      load(!kOfKeys, column_first, column_a, column_b);
      __syncthreads();
#pragma unroll
      for (int r = 0; r < kRows; ++r) {
        const int row = warp * kRows + r;
        const int64_t query = kOfKeys ? column_first + lane : first + row;
        const int64_t key = kOfKeys ? first + row : column_first + lane;
        float p = 0, slope = 0, dropout = 0;
        if (query < meeting.query_count && meeting.SeenBy(query).Has(key)) {
          const float logit = Dot(row_a.At(row), column_a.At(lane), width) * meeting.head.scale;
          p = expf(logit - log_sum_exp[meeting.SumsAt(query)]);
          dropout = meeting.DropoutOf(query, key);
          const float gradient = Dot(row_b.At(row), column_b.At(lane), width) * dropout;
          slope = p * (gradient - products[meeting.SumsAt(query)]);
        }
        AddWeighted(slope, column_a, width, to.a[r]);
        if constexpr (kOfKeys) AddWeighted(p * dropout, column_b, width, to.b[r]);
      }
    }
  }
}

// Kernels have 48 KiB of shared memory unless they ask for more.
template <typename Kernel>
cudaError_t AllowShared(Kernel kernel, size_t bytes) {
  return cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                              static_cast<int>(bytes));
}

// Blocks (`rows_of_block` rows, head, sequence).
inline dim3 RowBlocks(int64_t heads, int64_t sequences, int64_t rows, int64_t rows_of_block) {
  return dim3(static_cast<unsigned>(BlocksFor(rows, rows_of_block)), static_cast<unsigned>(heads),
              static_cast<unsigned>(sequences));
}

}  // namespace lockstep::cuda
