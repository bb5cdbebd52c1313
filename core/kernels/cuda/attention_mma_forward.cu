// FlashAttention-2 (Dao, 2023): a warp has its queries' logits, probabilities and results in
// registers, and meets one tile of keys and values after the other. While it computes with one, the
// next is on its way to shared memory.

#include <initializer_list>
#include <type_traits>

#include "core/kernels/cuda/attention_head.cuh"
#include "core/kernels/cuda/attention_launch.cuh"
#include "core/kernels/cuda/attention_mask.cuh"
#include "core/kernels/cuda/attention_mma.h"
#include "core/kernels/cuda/attention_tiles.cuh"

namespace lockstep::cuda {
namespace {

constexpr int kM = 2;
constexpr int kRowsOfWarp = 16 * kM;
constexpr int kQueries = kTileWarps * kRowsOfWarp;  // of a block
// Keys of a tile: as many as registers hold logits of, beside the results.
template <int kWidth>
constexpr int kKeysOf = kWidth == 64 ? 64 : 48;

// Queries are read again with each tile of keys: from registers where these suffice.
template <int kWidth>
using Queries =
    std::conditional_t<kWidth == 64, RowsInRegisters<kWidth, kM>, RowsInShared<kWidth, kM>>;

template <int kWidth>
constexpr int SharedBytes() {
  return Tile<kWidth>::Bytes(kQueries + 2 * 2 * kKeysOf<kWidth>);
}

// What the lane knows of its rows so far.
struct Softmax {
  float largest[kM][2];  // logit, before it is scaled
  float sum[kM][2];      // of the lane's own columns, raised

  __device__ Softmax() {
#pragma unroll
    for (int m = 0; m < kM; ++m) {
      for (int half = 0; half < 2; ++half) {
        largest[m][half] = -INFINITY;
        sum[m][half] = 0;
      }
    }
  }

  // Turns logits into raised exponentials relative to the largest one so far, which every row has
  // from key 0 of the first tile on; `results` are made relative to it, too.
  template <int kN, int kResults>
  __device__ __forceinline__ void Add(float scale2, float (&logits)[kM][kN][4],
                                      float (&results)[kM][kResults][4]) {
#pragma unroll
    for (int m = 0; m < kM; ++m) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        float above = largest[m][half];
#pragma unroll
        for (int n = 0; n < kN; ++n) {
          above = fmaxf(above, fmaxf(logits[m][n][2 * half], logits[m][n][2 * half + 1]));
        }
        // Four lanes have a row.
        above = fmaxf(above, __shfl_xor_sync(kAllLanes, above, 1));
        above = fmaxf(above, __shfl_xor_sync(kAllLanes, above, 2));
        const float shrink = Exp2((largest[m][half] - above) * scale2);
        largest[m][half] = above;
        const float shift = above * scale2 - kRaised;
        float added = 0;
#pragma unroll
        for (int n = 0; n < kN; ++n) {
#pragma unroll
          for (int i = 2 * half; i < 2 * half + 2; ++i) {
            logits[m][n][i] = Exp2(fmaf(logits[m][n][i], scale2, -shift));
            added += logits[m][n][i];
          }
        }
        sum[m][half] = fmaf(sum[m][half], shrink, added);
#pragma unroll
        for (int n = 0; n < kResults; ++n) {
          results[m][n][2 * half] *= shrink;
          results[m][n][2 * half + 1] *= shrink;
        }
      }
    }
  }

  __device__ void Finish() {
#pragma unroll
    for (int m = 0; m < kM; ++m) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        sum[m][half] += __shfl_xor_sync(kAllLanes, sum[m][half], 1);
        sum[m][half] += __shfl_xor_sync(kAllLanes, sum[m][half], 2);
      }
    }
  }
};

// Block (tile of queries, head, sequence).
template <typename T, int kWidth, bool kDrops>
__global__ void __launch_bounds__(kTileThreads, 2)
    ForwardKernel(Attention attention, int time, const T* qkv, Mask mask, T* y,
                  float* log_sum_exp) {
  constexpr int kKeys = kKeysOf<kWidth>, kN = kKeys / 8;
  extern __shared__ __align__(1024) unsigned char shared[];
  const Head head(attention, time);
  const int64_t width = attention.heads * kWidth, stride = 3 * width;  // of all heads
  const HeadRows<const T> queries = {qkv + head.InQkv(0, 0), stride};
  const HeadRows<const T> keys = {queries.data + width, stride};
  const HeadRows<const T> values = {keys.data + width, stride};
  const Tile<kWidth> query_tile = {shared}, stages = query_tile.From(kQueries);
  const auto key_tile = [&](int i) { return stages.From(i % 2 * 2 * kKeys); };
  const auto value_tile = [&](int i) { return key_tile(i).From(kKeys); };
  // The last queries have the most keys: they come first, lest the GPU wait for them in the end.
  const int first = static_cast<int>(gridDim.x - 1 - blockIdx.x) * kQueries;
  const int warp = threadIdx.x / kWarp, lane = threadIdx.x % kWarp, g = lane / 4, t = lane % 4;
  const int first_of_warp = first + warp * kRowsOfWarp;
  const Tile<kWidth> own = query_tile.From(warp * kRowsOfWarp);
  TileCopy<T, kWidth>(queries, first).template Next<kQueries>(time - first, query_tile);
  TileCopy<T, kWidth> next_keys(keys, 0), next_values(values, 0);
  const auto copy = [&](int i) {
    next_keys.template Next<kKeys>(time - i * kKeys, key_tile(i));
    next_values.template Next<kKeys>(time - i * kKeys, value_tile(i));
  };
  copy(0);
  WaitForCopies();
  __syncthreads();
  const LaneDown<kWidth> down;
  const LaneAcross<kWidth> across;
  const Queries<kWidth> rows(own, down);

  constexpr float kScale2 = kScale<kWidth> * kLog2E;  // exponentials are powers of two
  Softmax softmax;
  float results[kM][kWidth / 8][4] = {};
  const int tiles = (min(first + kQueries, time) + kKeys - 1) / kKeys;
  for (int i = 0; i < tiles; ++i) {
    WaitForCopies();
    __syncthreads();  // tile i is there, and tile i - 1 has been read
    if (i + 1 < tiles) copy(i + 1);
    const int begin = i * kKeys;
    if (begin >= first_of_warp + kRowsOfWarp) continue;  // later than all of the warp's queries
    uint32_t kept[kM];
    if constexpr (kDrops) {
#pragma unroll
      for (int m = 0; m < kM; ++m) {
        kept[m] = KeptOfQueries<kN>(mask, head.InMask(first_of_warp + 16 * m, begin), time);
      }
    }
    float logits[kM][kN][4] = {};
    AddDots<T>(rows, key_tile(i), across, logits);
    if (begin + kKeys - 1 > first_of_warp)
      HideLaterKeys(begin + 2 * t - first_of_warp - g, -INFINITY, logits);
    softmax.Add(kScale2, logits, results);
    if constexpr (kDrops) Drop(kept, logits);
    uint32_t weights[kM][kN / 2][4];
    PackWeights<T>(logits, weights);
    AddWeighted<T>(weights, value_tile(i), down, results);
  }

  softmax.Finish();
  float factor[kM][2];
#pragma unroll
  for (int m = 0; m < kM; ++m) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const float sum = softmax.sum[m][half];
      factor[m][half] = (kDrops ? mask.factor : 1.0f) / sum;
      const int query = first_of_warp + 16 * m + 8 * half + g;
      if (t == 0 && query < time) {
        log_sum_exp[head.InSums(query)] =
            softmax.largest[m][half] * kScale<kWidth> + logf(sum * kLower);
      }
    }
  }
  StoreRows<T, kWidth, kM>(results, factor, own, first_of_warp, time, {y + head.InY(0), width});
}

template <typename T, int kWidth>
cudaError_t Forward(cudaStream_t stream, const Attention& attention, int64_t batch, int64_t time,
                    Array qkv, Array y, float* log_sum_exp) {
  const auto kernel = attention.dropout.probability > 0 ? ForwardKernel<T, kWidth, true>
                                                        : ForwardKernel<T, kWidth, false>;
  return Launch(kernel, HeadBlocks(attention, batch, time, kQueries), SharedBytes<kWidth>(), stream,
                attention, static_cast<int>(time), static_cast<const T*>(qkv.data),
                Mask(attention.dropout), static_cast<T*>(y.data), log_sum_exp);
}

}  // namespace

bool FitsTensorCores(const Attention& attention, int64_t time,
                     std::initializer_list<Array> tensors) {
  if (attention.head_width != 64 && attention.head_width != 128) return false;
  if (attention.group() != 1 || attention.documents.first != nullptr) return false;
  constexpr int64_t kLongest = int64_t{1} << 30;  // what tiles are counted with
  if (time > kLongest) return false;
  const DType dtype = tensors.begin()->dtype;
  if (dtype != DType::kF16 && dtype != DType::kBF16) return false;
  for (const Array& x : tensors) {
    if (x.dtype != dtype || reinterpret_cast<uintptr_t>(x.data) % 16 != 0) return false;
  }
  return true;
}

cudaError_t TensorCoreAttentionForward(cudaStream_t stream, const Attention& attention,
                                       int64_t batch, int64_t time, Array qkv, Array y,
                                       float* log_sum_exp) {
  return ForHeads(attention, qkv.dtype, [&](auto head) {
    using H = decltype(head);
    return Forward<typename H::Element, H::kWidth>(stream, attention, batch, time, qkv, y,
                                                   log_sum_exp);
  });
}

}  // namespace lockstep::cuda
