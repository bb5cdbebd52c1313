// FlashAttention-2 backward (Dao, 2023), as two kernels in place of one with atomic additions: the
// queries' gradients, then those of keys and values. Both make the probabilities again from the
// stored log-sum-exp, which costs two products of seven; in return nothing is added across blocks,
// and two runs agree to the bit.
//
// Either kernel computes with the rows that it sums for as the rows of all products: logits are
// queries keys^T in one, keys queries^T in the other. What one product leaves in registers is then
// what the next one takes from there (mma.cuh).

#include <cstring>
#include <type_traits>

#include "core/kernels/cuda/attention_head.cuh"
#include "core/kernels/cuda/attention_launch.cuh"
#include "core/kernels/cuda/attention_mask.cuh"
#include "core/kernels/cuda/attention_mma.h"
#include "core/kernels/cuda/attention_tiles.cuh"

namespace lockstep::cuda {
namespace {

constexpr int kColumns = 32;  // of the logits that a warp has at a time
constexpr int kN = kColumns / 8;

// products[t] = y[t] . dy[t], which equals the sum over keys of probability times its gradient
// (FlashAttention, section B.4). A thread has eight elements, so that kWidth / 8 lanes have a row
// of a head; rows [batch, time, heads] follow one another.
template <typename T, int kWidth>
__global__ void ProductsKernel(int64_t rows, int64_t time, int64_t heads, Array y, Array dy,
                               float* products) {
  const int64_t i = int64_t{blockIdx.x} * blockDim.x + threadIdx.x, row = i / (kWidth / 8);
  float sum = 0;
  if (row < rows) {
    float a[kVector], b[kVector];
    Load(y, i * kVector, a);
    Load(dy, i * kVector, b);
    for (int k = 0; k < kVector; ++k) sum = fmaf(a[k], b[k], sum);
  }
  for (int distance = kWidth / 16; distance > 0; distance /= 2) {
    sum += __shfl_xor_sync(kAllLanes, sum, distance);
  }
  if (row >= rows || i % (kWidth / 8) != 0) return;
  const int64_t head = row % heads, t = row / heads % time, batch = row / heads / time;
  products[(batch * heads + head) * time + t] = sum;
}

template <int kWidth>
struct OfQueries {
  static constexpr int kM = 2;
  static constexpr int kRowsOfWarp = 16 * kM;
  static constexpr int kRows = kTileWarps * kRowsOfWarp;  // queries of a block
  static constexpr int kKeys = kWidth == 64 ? 64 : 32;    // of a tile
  static constexpr int kShared = Tile<kWidth>::Bytes(2 * kRows + 2 * 2 * kKeys);
  // Queries and dy are read again with each tile: from registers where these suffice.
  using Rows =
      std::conditional_t<kWidth == 64, RowsInRegisters<kWidth, kM>, RowsInShared<kWidth, kM>>;
};

// Block (tile of queries, head, sequence).
template <typename T, int kWidth, bool kDrops>
__global__ void __launch_bounds__(kTileThreads, 2)
    QueryGradientKernel(Attention attention, int time, const T* qkv, const float* log_sum_exp,
                        const T* dy, const float* products, Mask mask, T* dqkv) {
  using Sizes = OfQueries<kWidth>;
  constexpr int kM = Sizes::kM, kKeys = Sizes::kKeys;
  extern __shared__ __align__(1024) unsigned char shared[];
  const Head head(attention, time);
  const int64_t width = attention.heads * kWidth, stride = 3 * width;  // of all heads
  const HeadRows<const T> queries = {qkv + head.InQkv(0, 0), stride};
  const HeadRows<const T> keys = {queries.data + width, stride};
  const HeadRows<const T> values = {keys.data + width, stride};
  const HeadRows<const T> slopes = {dy + head.InY(0), width};
  const Tile<kWidth> query_tile = {shared}, slope_tile = query_tile.From(Sizes::kRows);
  const Tile<kWidth> stages = slope_tile.From(Sizes::kRows);
  const auto key_tile = [&](int i) { return stages.From(i % 2 * 2 * kKeys); };
  const auto value_tile = [&](int i) { return key_tile(i).From(kKeys); };
  // The last queries have the most keys: they come first.
  const int first = static_cast<int>(gridDim.x - 1 - blockIdx.x) * Sizes::kRows;
  const int warp = threadIdx.x / kWarp, lane = threadIdx.x % kWarp, g = lane / 4, t = lane % 4;
  const int first_of_warp = first + warp * Sizes::kRowsOfWarp;
  const Tile<kWidth> own = query_tile.From(warp * Sizes::kRowsOfWarp);
  TileCopy<T, kWidth>(queries, first).template Next<Sizes::kRows>(time - first, query_tile);
  TileCopy<T, kWidth>(slopes, first).template Next<Sizes::kRows>(time - first, slope_tile);
  TileCopy<T, kWidth> next_keys(keys, 0), next_values(values, 0);
  const auto copy = [&](int i) {
    next_keys.template Next<kKeys>(time - i * kKeys, key_tile(i));
    next_values.template Next<kKeys>(time - i * kKeys, value_tile(i));
  };
  copy(0);
  float sum2[kM][2], product[kM][2];  // of the lane's rows; log_sum_exp for raised powers of two
#pragma unroll
  for (int m = 0; m < kM; ++m) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int query = min(first_of_warp + 16 * m + 8 * half + g, time - 1);
      sum2[m][half] = log_sum_exp[head.InSums(query)] * kLog2E - kRaised;
      product[m][half] = products[head.InSums(query)] * kLower;
    }
  }
  WaitForCopies();
  __syncthreads();
  const LaneDown<kWidth> down;
  const LaneAcross<kWidth> across;
  const typename Sizes::Rows query_rows(own, down);
  const typename Sizes::Rows slope_rows(slope_tile.From(warp * Sizes::kRowsOfWarp), down);

  constexpr float kScale2 = kScale<kWidth> * kLog2E;
  const float slope_factor = kDrops ? mask.factor * kLower : kLower;
  float gradient[kM][kWidth / 8][4] = {};
  const int tiles = (min(first + Sizes::kRows, time) + kKeys - 1) / kKeys;
  for (int i = 0; i < tiles; ++i) {
    WaitForCopies();
    __syncthreads();  // tile i is there, and tile i - 1 has been read
    if (i + 1 < tiles) copy(i + 1);
#pragma unroll 1
    for (int part = 0; part < kKeys; part += kColumns) {
      const int begin = i * kKeys + part;
      if (begin >= first_of_warp + Sizes::kRowsOfWarp) break;  // later than the warp's queries
      const Tile<kWidth> part_keys = key_tile(i).From(part);
      uint32_t kept[kM];
      if constexpr (kDrops) {
#pragma unroll
        for (int m = 0; m < kM; ++m) {
          kept[m] = KeptOfQueries<kN>(mask, head.InMask(first_of_warp + 16 * m, begin), time);
        }
      }
      float p[kM][kN][4] = {}, slope[kM][kN][4] = {};
      AddDots<T>(query_rows, part_keys, across, p);
      AddDots<T>(slope_rows, value_tile(i).From(part), across, slope);
      if constexpr (kDrops) Drop(kept, slope);
#pragma unroll
      for (int m = 0; m < kM; ++m) {
#pragma unroll
        for (int n = 0; n < kN; ++n) {
#pragma unroll
          for (int e = 0; e < 4; ++e) p[m][n][e] = Exp2(fmaf(p[m][n][e], kScale2, -sum2[m][e / 2]));
        }
      }
      if (begin + kColumns - 1 > first_of_warp) {
        HideLaterKeys(begin + 2 * t - first_of_warp - g, 0, p);
      }
#pragma unroll
      for (int m = 0; m < kM; ++m) {
#pragma unroll
        for (int n = 0; n < kN; ++n) {
#pragma unroll
          for (int e = 0; e < 4; ++e) {
            slope[m][n][e] = p[m][n][e] * fmaf(slope[m][n][e], slope_factor, -product[m][e / 2]);
          }
        }
      }
      uint32_t weights[kM][kN / 2][4];
      PackWeights<T>(slope, weights);
      AddWeighted<T>(weights, part_keys, down, gradient);
    }
  }
  float factor[kM][2];
#pragma unroll
  for (int m = 0; m < kM; ++m) factor[m][0] = factor[m][1] = kScale<kWidth>;
  StoreRows<T, kWidth, kM>(gradient, factor, own, first_of_warp, time,
                           {dqkv + head.InQkv(0, 0), stride});
}

// Two sums a row leave a warp fewer rows of a wide head.
template <int kWidth>
struct OfKeys {
  static constexpr int kM = kWidth == 64 ? 2 : 1;
  static constexpr int kRowsOfWarp = 16 * kM;
  static constexpr int kRows = kTileWarps * kRowsOfWarp;   // keys of a block
  static constexpr int kQueries = kWidth == 64 ? 64 : 32;  // of a tile
  static constexpr int kTiles = Tile<kWidth>::Bytes(2 * kRows + 2 * 2 * kQueries);
  static constexpr int kShared = kTiles + 2 * 2 * kQueries * static_cast<int>(sizeof(float));
};

// Block (tile of keys, head, sequence).
template <typename T, int kWidth, bool kDrops>
__global__ void __launch_bounds__(kTileThreads, 2)
    KeyGradientsKernel(Attention attention, int time, const T* qkv, const float* log_sum_exp,
                       const T* dy, const float* products, Mask mask, T* dqkv) {
  using Sizes = OfKeys<kWidth>;
  constexpr int kM = Sizes::kM, kQueries = Sizes::kQueries;
  extern __shared__ __align__(1024) unsigned char shared[];
  const Head head(attention, time);
  const int64_t width = attention.heads * kWidth, stride = 3 * width;  // of all heads
  const HeadRows<const T> queries = {qkv + head.InQkv(0, 0), stride};
  const HeadRows<const T> keys = {queries.data + width, stride};
  const HeadRows<const T> values = {keys.data + width, stride};
  const HeadRows<const T> slopes = {dy + head.InY(0), width};
  const float* const sums_of_head = log_sum_exp + head.InSums(0);
  const float* const products_of_head = products + head.InSums(0);
  const Tile<kWidth> all_keys = {shared}, all_values = all_keys.From(Sizes::kRows);
  const Tile<kWidth> stages = all_values.From(Sizes::kRows);
  const auto query_tile = [&](int i) { return stages.From(i % 2 * 2 * kQueries); };
  const auto slope_tile = [&](int i) { return query_tile(i).From(kQueries); };
  // log_sum_exp of the tile's queries, then their products.
  const auto numbers = [&](int i) {
    return reinterpret_cast<float*>(shared + Sizes::kTiles) + i % 2 * 2 * kQueries;
  };
  // The first keys are seen by the most queries: they come first.
  const int first = static_cast<int>(blockIdx.x) * Sizes::kRows;
  TileCopy<T, kWidth> next_queries(queries, first), next_slopes(slopes, first);
  const auto copy = [&](int i) {
    const int begin = first + i * kQueries;
    next_queries.template Next<kQueries>(time - begin, query_tile(i));
    next_slopes.template Next<kQueries>(time - begin, slope_tile(i));
    const int n = threadIdx.x % kQueries, which = threadIdx.x / kQueries;
    if (which < 2) {
      const float* const from = which == 0 ? sums_of_head : products_of_head;
      const bool exists = begin + n < time;
      Copy4(numbers(i) + which * kQueries + n, from + begin + n, exists);
    }
  };

  const int warp = threadIdx.x / kWarp, lane = threadIdx.x % kWarp, g = lane / 4, t = lane % 4;
  const int first_of_warp = first + warp * Sizes::kRowsOfWarp;
  const Tile<kWidth> own_keys = all_keys.From(warp * Sizes::kRowsOfWarp);
  const Tile<kWidth> own_values = all_values.From(warp * Sizes::kRowsOfWarp);
  TileCopy<T, kWidth>(keys, first).template Next<Sizes::kRows>(time - first, all_keys);
  TileCopy<T, kWidth>(values, first).template Next<Sizes::kRows>(time - first, all_values);
  copy(0);
  const LaneDown<kWidth> down;
  const LaneAcross<kWidth> across;
  const RowsInShared<kWidth, kM> key_rows(own_keys, down), value_rows(own_values, down);

  constexpr float kScale2 = kScale<kWidth> * kLog2E;
  const float slope_factor = kDrops ? mask.factor * kLower : kLower;
  float dkeys[kM][kWidth / 8][4] = {}, dvalues[kM][kWidth / 8][4] = {};
  const int tiles = (time - first + kQueries - 1) / kQueries;
  for (int i = 0; i < tiles; ++i) {
    WaitForCopies();
    __syncthreads();  // tile i is there, and tile i - 1 has been read
    if (i + 1 < tiles) copy(i + 1);
#pragma unroll 1
    for (int part = 0; part < kQueries; part += kColumns) {
      const int begin = first + i * kQueries + part;
      if (begin + kColumns <= first_of_warp) continue;  // earlier than all of the warp's keys
      if (begin >= time) break;
      const Tile<kWidth> part_queries = query_tile(i).From(part);
      const Tile<kWidth> part_slopes = slope_tile(i).From(part);
      // Queries behind the last one are zeros, and so is what they add, with the numbers of zero
      // that belong to them.
      const float* const sums = numbers(i) + part + 2 * t;
      uint32_t weights[kM][kN / 2][4], kept[kM];
      if constexpr (kDrops) {
#pragma unroll
        for (int m = 0; m < kM; ++m) {
          kept[m] = KeptOfKeys<kN>(mask, head.InMask(begin, first_of_warp + 16 * m), time);
        }
      }

      float p[kM][kN][4] = {};
      AddDots<T>(key_rows, part_queries, across, p);
#pragma unroll
      for (int n = 0; n < kN; ++n) {
        const float2 sum = *reinterpret_cast<const float2*>(sums + 8 * n);
        const float sum2[2] = {sum.x * kLog2E - kRaised, sum.y * kLog2E - kRaised};
#pragma unroll
        for (int m = 0; m < kM; ++m) {
#pragma unroll
          for (int e = 0; e < 4; ++e) p[m][n][e] = Exp2(fmaf(p[m][n][e], kScale2, -sum2[e % 2]));
        }
      }
      if (begin < first_of_warp + Sizes::kRowsOfWarp - 1) {
        HideEarlierQueries(first_of_warp + g - begin - 2 * t, p);
      }
      if constexpr (kDrops) {
        float rest[kM][kN][4];
        memcpy(rest, p, sizeof(rest));
        Drop(kept, rest);
        PackWeights<T>(rest, weights);
      } else {
        PackWeights<T>(p, weights);
      }
      AddWeighted<T>(weights, part_slopes, down, dvalues);

      float slope[kM][kN][4] = {};
      AddDots<T>(value_rows, part_slopes, across, slope);
      if constexpr (kDrops) Drop(kept, slope);
#pragma unroll
      for (int n = 0; n < kN; ++n) {
        const float2 both = *reinterpret_cast<const float2*>(sums + kQueries + 8 * n);
        const float product[2] = {both.x * kLower, both.y * kLower};
#pragma unroll
        for (int m = 0; m < kM; ++m) {
#pragma unroll
          for (int e = 0; e < 4; ++e) {
            slope[m][n][e] = p[m][n][e] * fmaf(slope[m][n][e], slope_factor, -product[e % 2]);
          }
        }
      }
      PackWeights<T>(slope, weights);
      AddWeighted<T>(weights, part_queries, down, dkeys);
    }
  }
  float of_keys[kM][2], of_values[kM][2];
#pragma unroll
  for (int m = 0; m < kM; ++m) {
    of_keys[m][0] = of_keys[m][1] = kScale<kWidth>;
    of_values[m][0] = of_values[m][1] = slope_factor;
  }
  StoreRows<T, kWidth, kM>(dkeys, of_keys, own_keys, first_of_warp, time,
                           {dqkv + head.InQkv(1, 0), stride});
  StoreRows<T, kWidth, kM>(dvalues, of_values, own_values, first_of_warp, time,
                           {dqkv + head.InQkv(2, 0), stride});
}

template <typename T, int kWidth>
cudaError_t Backward(cudaStream_t stream, const Attention& attention, int64_t batch, int64_t time,
                     Array qkv, Array y, const float* log_sum_exp, Array dy, float* products,
                     Array dqkv) {
  const int64_t rows = batch * time * attention.heads;
  ProductsKernel<T, kWidth>
      <<<BlocksFor(rows * (kWidth / kVector), kThreads), kThreads, 0, stream>>>(
          rows, time, attention.heads, y, dy, products);
  const bool drops = attention.dropout.probability > 0;
  const auto run = [&](auto kernel, int64_t rows_of_block, int shared_bytes) {
    return Launch(kernel, HeadBlocks(attention, batch, time, rows_of_block), shared_bytes, stream,
                  attention, static_cast<int>(time), static_cast<const T*>(qkv.data), log_sum_exp,
                  static_cast<const T*>(dy.data), products, Mask(attention.dropout),
                  static_cast<T*>(dqkv.data));
  };
  using Q = OfQueries<kWidth>;
  using K = OfKeys<kWidth>;
  const cudaError_t error =
      run(drops ? QueryGradientKernel<T, kWidth, true> : QueryGradientKernel<T, kWidth, false>,
          Q::kRows, Q::kShared);
  if (error != cudaSuccess) return error;
  return run(drops ? KeyGradientsKernel<T, kWidth, true> : KeyGradientsKernel<T, kWidth, false>,
             K::kRows, K::kShared);
}

}  // namespace

cudaError_t TensorCoreAttentionBackward(cudaStream_t stream, const Attention& attention,
                                        int64_t batch, int64_t time, Array qkv, Array y,
                                        const float* log_sum_exp, Array dy, float* products,
                                        Array dqkv) {
  return ForHeads(attention, qkv.dtype, [&](auto head) {
    using H = decltype(head);
    return Backward<typename H::Element, H::kWidth>(stream, attention, batch, time, qkv, y,
                                                    log_sum_exp, dy, products, dqkv);
  });
}

}  // namespace lockstep::cuda
