// What attention on tensor cores is built from: tiles of a head's rows in shared memory, products
// of a warp's rows with them, and the way back. A block has kTileWarps warps, a warp kM x 16 rows
// of the result. Arrays of fragments are [m][n]: 16 rows from 16 m on, 8 columns from 8 n on
// (mma.cuh).

#pragma once

#include <cstdint>

#include "core/kernels/cuda/mma.cuh"
#include "core/kernels/cuda/reduce.cuh"
#include "cuda_runtime.h"

namespace lockstep::cuda {

constexpr int kTileWarps = 4;
constexpr int kTileThreads = kTileWarps * kWarp;

constexpr float kLog2E = 1.44269504f;

// What logits are multiplied by: the inverse square root of the width.
template <int kWidth>
constexpr float kScale = kWidth == 64 ? 0.125f : 0.0883883476f;

// Probabilities are computed with as 2^15 times what they are: fp16 then holds those down to 2^-29
// as well as it holds anything, and is not exceeded by a probability of one.
constexpr float kRaised = 15;  // in powers of two
constexpr float kRaise = 0x1p15f, kLower = 0x1p-15f;

// Rows of kWidth 16-bit elements in shared memory, from a multiple of 1024 bytes on. Vectors of 16
// bytes change places within their row, by the row's number: eight rows' vectors of one column lie
// in different banks.
template <int kWidth>
struct Tile {
  static constexpr int kRowBytes = 2 * kWidth;
  static constexpr int kVectors = kWidth / 8;
  static constexpr int Bytes(int rows) { return rows * kRowBytes; }

  unsigned char* data;

  __device__ unsigned char* At(int row, int vector) const {
    return data + row * kRowBytes + ((vector ^ (row % 8)) * 16);
  }
  // The tile from row `row` on, a multiple of 8.
  __device__ Tile From(int row) const { return {data + row * kRowBytes}; }
};

// Which row of four matrices the calling lane names when it loads them, with the matrices' vectors:
// two below each other, then the two right of these.
template <int kWidth>
struct LaneDown {
  int offset;
  __device__ LaneDown() {
    const int lane = threadIdx.x % kWarp;
    offset = lane % 16 * Tile<kWidth>::kRowBytes + ((lane / 16 ^ (lane % 8)) * 16);
  }
  // The same `row` rows down, a multiple of 8, and `column` to the right, a multiple of 16. Bits of
  // an even vector pass through the exchange of places.
  __device__ const unsigned char* In(const Tile<kWidth>& tile, int row, int column) const {
    return tile.data + row * Tile<kWidth>::kRowBytes + (offset ^ (column * 2));
  }
};

// Two side by side, then the two below these.
template <int kWidth>
struct LaneAcross {
  int offset;
  __device__ LaneAcross() {
    const int lane = threadIdx.x % kWarp;
    offset =
        (lane / 16 * 8 + lane % 8) * Tile<kWidth>::kRowBytes + ((lane / 8 % 2 ^ (lane % 8)) * 16);
  }
  __device__ const unsigned char* In(const Tile<kWidth>& tile, int row, int column) const {
    return tile.data + row * Tile<kWidth>::kRowBytes + (offset ^ (column * 2));
  }
};

// Rows of a head in device memory, `stride` elements apart.
template <typename T>
struct HeadRows {
  T* data;
  int64_t stride;
};

// Copies rows of a head, in order, to one tile after the other. By all threads of the block; a
// thread has 16 bytes of every kStep-th row.
template <typename T, int kWidth>
class TileCopy {
 public:
  // Rows first, first + 1, ...
  __device__ TileCopy(const HeadRows<const T>& from, int first)
      : from_(from.data + (first + Row()) * from.stride + Vector() * 8), stride_(from.stride) {}

  // Begins to copy the next kRows rows; zeros behind the first `left` of them.
  template <int kRows>
  __device__ void Next(int left, const Tile<kWidth>& tile) {
    static_assert(kRows % kStep == 0 && kStep % 8 == 0);
    unsigned char* const to = tile.At(Row(), Vector());
#pragma unroll
    for (int r = 0; r < kRows; r += kStep) {
      Copy16(to + r * Tile<kWidth>::kRowBytes, from_, Row() + r < left);
      from_ += kStep * stride_;
    }
  }

 private:
  static constexpr int kVectors = Tile<kWidth>::kVectors, kStep = kTileThreads / kVectors;
  static __device__ int Row() { return static_cast<int>(threadIdx.x) / kVectors; }
  static __device__ int Vector() { return static_cast<int>(threadIdx.x) % kVectors; }

  const T* from_;
  int64_t stride_;
};

// The a fragments of a warp's rows: in registers,
template <int kWidth, int kM>
struct RowsInRegisters {
  uint32_t a[kM][kWidth / 16][4];

  __device__ RowsInRegisters(const Tile<kWidth>& tile, const LaneDown<kWidth>& down) {
#pragma unroll
    for (int m = 0; m < kM; ++m) {
#pragma unroll
      for (int k = 0; k < kWidth / 16; ++k) LoadMatrices(down.In(tile, 16 * m, 16 * k), a[m][k]);
    }
  }
  __device__ void Get(int m, int k, uint32_t (&out)[4]) const {
#pragma unroll
    for (int i = 0; i < 4; ++i) out[i] = a[m][k][i];
  }
};

// or in shared memory, where they do not fit there.
template <int kWidth, int kM>
struct RowsInShared {
  Tile<kWidth> tile;
  LaneDown<kWidth> down;

  __device__ RowsInShared(const Tile<kWidth>& tile, const LaneDown<kWidth>& down)
      : tile(tile), down(down) {}
  __device__ void Get(int m, int k, uint32_t (&out)[4]) const {
    LoadMatrices(down.In(tile, 16 * m, 16 * k), out);
  }
};

// d[., n] += the warp's rows times row n of the tile: d += rows tile^T.
template <typename T, int kWidth, int kM, int kN, typename Rows>
__device__ __forceinline__ void AddDots(const Rows& rows, const Tile<kWidth>& tile,
                                        const LaneAcross<kWidth>& across, float (&d)[kM][kN][4]) {
#pragma unroll
  for (int k = 0; k < kWidth / 16; ++k) {
    uint32_t a[kM][4];
#pragma unroll
    for (int m = 0; m < kM; ++m) rows.Get(m, k, a[m]);
#pragma unroll
    for (int n = 0; n < kN; n += 2) {
      uint32_t b[4];
      LoadMatrices(across.In(tile, 8 * n, 16 * k), b);
#pragma unroll
      for (int m = 0; m < kM; ++m) {
        MultiplyAdd<T>(a[m], b[0], b[1], d[m][n]);
        MultiplyAdd<T>(a[m], b[2], b[3], d[m][n + 1]);
      }
    }
  }
}

// d += weights tile, where weights has a column for each of the tile's rows.
template <typename T, int kWidth, int kM, int kN>
__device__ __forceinline__ void AddWeighted(const uint32_t (&weights)[kM][kN][4],
                                            const Tile<kWidth>& tile, const LaneDown<kWidth>& down,
                                            float (&d)[kM][kWidth / 8][4]) {
#pragma unroll
  for (int k = 0; k < kN; ++k) {
#pragma unroll
    for (int n = 0; n < kWidth / 8; n += 2) {
      uint32_t b[4];
      LoadMatricesTransposed(down.In(tile, 16 * k, 8 * n), b);
#pragma unroll
      for (int m = 0; m < kM; ++m) {
        MultiplyAdd<T>(weights[m][k], b[0], b[1], d[m][n]);
        MultiplyAdd<T>(weights[m][k], b[2], b[3], d[m][n + 1]);
      }
    }
  }
}

// Rounds results to be the weights of another product.
template <typename T, int kM, int kN>
__device__ __forceinline__ void PackWeights(const float (&d)[kM][kN][4],
                                            uint32_t (&weights)[kM][kN / 2][4]) {
#pragma unroll
  for (int m = 0; m < kM; ++m) {
#pragma unroll
    for (int k = 0; k < kN / 2; ++k) {
      weights[m][k][0] = Pack<T>(d[m][2 * k][0], d[m][2 * k][1]);
      weights[m][k][1] = Pack<T>(d[m][2 * k][2], d[m][2 * k][3]);
      weights[m][k][2] = Pack<T>(d[m][2 * k + 1][0], d[m][2 * k + 1][1]);
      weights[m][k][3] = Pack<T>(d[m][2 * k + 1][2], d[m][2 * k + 1][3]);
    }
  }
}

// Writes the warp's rows, that of m, half (0: g, 1: g + 8) times factor[m][half], to rows first,
// first + 1, ... below `time`. On the way they lie in `tile`, which the warp has for itself: so a
// lane writes 16 bytes, and a warp whole rows.
template <typename T, int kWidth, int kM>
__device__ void StoreRows(const float (&d)[kM][kWidth / 8][4], const float (&factor)[kM][2],
                          const Tile<kWidth>& tile, int first, int time, const HeadRows<T>& to) {
  constexpr int kVectors = Tile<kWidth>::kVectors, kStep = kWarp / kVectors;
  const int lane = threadIdx.x % kWarp, g = lane / 4, t = lane % 4;
  __syncwarp();  // the tile has been read
#pragma unroll
  for (int m = 0; m < kM; ++m) {
#pragma unroll
    for (int n = 0; n < kWidth / 8; ++n) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const uint32_t pair =
            Pack<T>(d[m][n][2 * half] * factor[m][half], d[m][n][2 * half + 1] * factor[m][half]);
        reinterpret_cast<uint32_t*>(tile.At(16 * m + 8 * half + g, n))[t] = pair;
      }
    }
  }
  __syncwarp();
#pragma unroll
  for (int r = 0; r < 16 * kM; r += kStep) {
    const int row = r + lane / kVectors, vector = lane % kVectors;
    if (first + row >= time) continue;
    *reinterpret_cast<uint4*>(to.data + (first + row) * to.stride + vector * 8) =
        *reinterpret_cast<const uint4*>(tile.At(row, vector));
  }
}

}  // namespace lockstep::cuda
