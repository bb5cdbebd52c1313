// What is taken out of a warp's tile of logits or probabilities: keys that come later than the
// query, and what dropout drops. Tiles are arrays [m][n] of 16 rows and 8 columns each (mma.cuh).

#pragma once

#include <cmath>
#include <cstdint>

#include "core/kernels/cuda/philox.cuh"
#include "core/kernels/cuda/reduce.cuh"
#include "core/kernels/options.h"
#include "cuda_runtime.h"

namespace lockstep::cuda {

// Dropout's mask. One block of Philox decides on four keys of a query: where these lie with several
// lanes, each lane makes another block, and they trade.
struct Mask {
  uint64_t key, counter;
  uint32_t lowest;  // random bits that keep an element are at least this
  float factor;     // of what is kept

  // The uniform number of DropoutFactor is the upper 24 bits as a fraction: compared as integers.
  explicit Mask(const Dropout& dropout)
      : key(dropout.key),
        counter(dropout.counter),
        lowest(static_cast<uint32_t>(std::ceil(dropout.probability * 0x1p24f)) << 8),
        factor(1.0f / (1.0f - dropout.probability)) {}

  // Bit i: whether element 4 block + i is kept.
  __device__ unsigned OfBlock(uint64_t block) const {
    const uint4 c = PhiloxBlock(key, block, counter);
    return unsigned{c.x >= lowest} | unsigned{c.y >= lowest} << 1 | unsigned{c.z >= lowest} << 2 |
           unsigned{c.w >= lowest} << 3;
  }
  __device__ unsigned OfElement(uint64_t element) const {
    return OfBlock(element / 4) >> (element % 4) & 1;
  }
};

// Whether the lane's elements are kept, of kCount <= 8 tiles side by side: bit 4 n + i for element
// i of tile n. Rows are queries, columns keys; `element` is that of the mask's first row and
// column, a query on it is `time` more. Where `time` is a multiple of four, so is `element`.
template <int kCount>
__device__ uint32_t KeptOfQueries(const Mask& mask, uint64_t element, int time) {
  static_assert(kCount <= 8);
  const int g = threadIdx.x % kWarp / 4, t = threadIdx.x % 4;
  const uint64_t upper = element + uint64_t{static_cast<unsigned>(g)} * time,
                 lower = upper + 8ull * time;
  uint32_t kept = 0;
#pragma unroll 1
  for (int n = 0; n < kCount; ++n) {
    unsigned four = 0;
    if (time % 4 == 0) {
      // Lanes 2k and 2k + 1 have the four keys of two queries: one block each.
      const bool odd = t % 2 != 0;
      const unsigned own = mask.OfBlock((odd ? lower : upper) / 4 + 2 * n + t / 2);
      const unsigned other = __shfl_xor_sync(kAllLanes, own, 1);
      four = odd ? other >> 2 | (own & 12u) : (own & 3u) | (other & 3u) << 2;
    } else {
      const int column = 8 * n + 2 * t;
#pragma unroll 1
      for (int i = 0; i < 4; ++i) {
        four |= mask.OfElement((i / 2 == 0 ? upper : lower) + column + i % 2) << i;
      }
    }
    kept |= four << 4 * n;
  }
  return kept;
}

// The same where rows are keys and columns queries.
template <int kCount>
__device__ uint32_t KeptOfKeys(const Mask& mask, uint64_t element, int time) {
  static_assert(kCount <= 8);
  const int g = threadIdx.x % kWarp / 4, t = threadIdx.x % 4;
  uint32_t kept = 0;
#pragma unroll 1
  for (int n = 0; n < kCount; ++n) {
    unsigned four = 0;
    // The element of the lane's first query; the next query's is `time` further.
    const uint64_t first = element + uint64_t{static_cast<unsigned>(8 * n + 2 * t)} * time;
    if (time % 4 == 0) {
      // Four lanes of consecutive g have the same two queries and, of each, keys of two blocks.
      // Lane i of them makes the block in which all four have their element i.
      const int i = g % 4;
      const uint64_t block = (first + (i % 2 == 0 ? 0 : time)) / 4 + g / 4 + i / 2 * 2;
      unsigned all = mask.OfBlock(block) << 4 * i;
      all |= __shfl_xor_sync(kAllLanes, all, 4);
      all |= __shfl_xor_sync(kAllLanes, all, 8);
      all >>= i;
      four = (all & 1u) | (all >> 3 & 2u) | (all >> 6 & 4u) | (all >> 9 & 8u);
    } else {
#pragma unroll 1
      for (int i = 0; i < 4; ++i) {
        four |= mask.OfElement(first + (i % 2 == 0 ? 0 : time) + g + i / 2 * 8) << i;
      }
    }
    kept |= four << 4 * n;
  }
  return kept;
}

// Zeros where elements are not kept; kept[m] as above.
template <int kM, int kCount>
__device__ __forceinline__ void Drop(const uint32_t (&kept)[kM], float (&x)[kM][kCount][4]) {
#pragma unroll
  for (int m = 0; m < kM; ++m) {
#pragma unroll
    for (int n = 0; n < kCount; ++n) {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        if ((kept[m] & 1u << (4 * n + i)) == 0) x[m][n][i] = 0;
      }
    }
  }
}

// Puts `value` where a query, a row, does not see the key, a column. `ahead`: how far the key of
// the lane's first element is ahead of its query.
template <int kM, int kCount>
__device__ __forceinline__ void HideLaterKeys(int ahead, float value, float (&x)[kM][kCount][4]) {
#pragma unroll
  for (int m = 0; m < kM; ++m) {
#pragma unroll
    for (int n = 0; n < kCount; ++n) {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        if (ahead + 8 * n + i % 2 > 16 * m + i / 2 * 8) x[m][n][i] = value;
      }
    }
  }
}

// Zeros where a query, a column, does not see the key, a row. `ahead` as above.
template <int kM, int kCount>
__device__ __forceinline__ void HideEarlierQueries(int ahead, float (&x)[kM][kCount][4]) {
#pragma unroll
  for (int m = 0; m < kM; ++m) {
#pragma unroll
    for (int n = 0; n < kCount; ++n) {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        if (ahead + 16 * m + i / 2 * 8 > 8 * n + i % 2) x[m][n][i] = 0;
      }
    }
  }
}

}  // namespace lockstep::cuda
