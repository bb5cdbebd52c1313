// Sums down the columns of a matrix [rows, width], one or two for each column: in fp32 over short
// runs of rows, in double over these, in one order.

#pragma once

#include <cstdint>

#include "core/kernels/cuda/column_sums.h"
#include "core/kernels/cuda/elements.cuh"
#include "core/kernels/cuda/reduce.cuh"

namespace lockstep::cuda {

constexpr int kFloatRows = 64;  // of a run in fp32
constexpr int kAtOnce = 4;      // rows that a thread has under way

// A block has rows of some columns: `across` threads have kCount columns each, the others the same
// columns of the next rows.
struct ColumnBlocks {
  int64_t rows_of_chunk, chunks;
  int across;      // a power of two up to 32
  int64_t beside;  // blocks

  ColumnBlocks(int64_t rows, int64_t width, int count) : across(1) {
    while (across < kWarp && across * count < width) across *= 2;
    beside = BlocksFor(width, across * count);
    constexpr int64_t kRowsOfThread = 16;  // at least: enough loads under way, few chunks
    const int64_t least = kThreads / across * kRowsOfThread, even = BlocksFor(rows, kRowParts);
    rows_of_chunk = even < least ? least : even;
    chunks = BlocksFor(rows, rows_of_chunk);
  }
};

// Adds the terms of kRows rows, `down` apart. All of them are loaded before the first is added.
template <int kRows, int kCount, int kSums, typename Terms>
__device__ __forceinline__ void AddRows(const Terms& terms, int64_t row, int down, int64_t column,
                                        float (&sums)[kSums][kCount]) {
  float out[kRows][kSums][kCount];
#pragma unroll
  for (int r = 0; r < kRows; ++r) terms(row + r * down, column, out[r]);
#pragma unroll
  for (int r = 0; r < kRows; ++r) {
    for (int s = 0; s < kSums; ++s) {
      for (int i = 0; i < kCount; ++i) sums[s][i] += out[r][s][i];
    }
  }
}

// partial[chunk][sum][width] = the sums over the chunk's rows of what
// terms(row, column, out[Terms::kSums][kCount]) gives.
template <int kCount, typename Terms>
__global__ void __launch_bounds__(kThreads, 2)
    PartColumnsKernel(int64_t rows, int64_t width, ColumnBlocks blocks, Terms terms,
                      double* partial) {
  constexpr int kSums = Terms::kSums;
  __shared__ double of_threads[kSums * kCount][kThreads];
  const int across = blocks.across, down = kThreads / across;
  const int x = static_cast<int>(threadIdx.x) % across, y = static_cast<int>(threadIdx.x) / across;
  const int64_t column = (int64_t{blockIdx.x} * across + x) * kCount, chunk = blockIdx.y;
  const int64_t begin = chunk * blocks.rows_of_chunk;
  const int64_t end = begin + blocks.rows_of_chunk < rows ? begin + blocks.rows_of_chunk : rows;
  double totals[kSums][kCount] = {};
  if (column < width) {
    for (int64_t run = begin + y; run < end; run += kFloatRows * down) {
      const int64_t run_end = run + kFloatRows * down < end ? run + kFloatRows * down : end;
      float sums[kSums][kCount] = {};
      int64_t row = run;
      for (; row + (kAtOnce - 1) * down < run_end; row += kAtOnce * down) {
        AddRows<kAtOnce>(terms, row, down, column, sums);
      }
      for (; row < run_end; row += down) AddRows<1>(terms, row, down, column, sums);
      for (int s = 0; s < kSums; ++s) {
        for (int i = 0; i < kCount; ++i) totals[s][i] += sums[s][i];
      }
    }
  }
  for (int s = 0; s < kSums; ++s) {
    for (int i = 0; i < kCount; ++i) of_threads[s * kCount + i][threadIdx.x] = totals[s][i];
  }
  __syncthreads();
  // A thread adds up a column's sums, of its rows in their order.
  for (int j = threadIdx.x; j < kSums * kCount * across; j += kThreads) {
    const int from = j % across, which = j / across;
    const int64_t c = (int64_t{blockIdx.x} * across + from) * kCount + which % kCount;
    if (c >= width) continue;
    double sum = 0;
    for (int k = 0; k < down; ++k) sum += of_threads[which][k * across + from];
    partial[(chunk * kSums + which / kCount) * width + c] = sum;
  }
}

// sums[i] = the chunks' partial[chunk][i], added up, every eighth of them by a warp; static, as
// every source has its own.
static __global__ void AddChunksKernel(int64_t chunks, int64_t count, const double* partial,
                                       double* sums) {
  constexpr int kWarps = kThreads / kWarp;
  __shared__ double of_warps[kWarps][kWarp];
  const int lane = threadIdx.x % kWarp, warp = threadIdx.x / kWarp;
  const int64_t i = int64_t{blockIdx.x} * kWarp + lane;
  double sum = 0;
  if (i < count) {
#pragma unroll 8
    for (int64_t chunk = warp; chunk < chunks; chunk += kWarps) sum += partial[chunk * count + i];
  }
  of_warps[warp][lane] = sum;
  __syncthreads();
  if (warp != 0 || i >= count) return;
  for (int other = 1; other < kWarps; ++other) sum += of_warps[other][lane];
  sums[i] = sum;
}

// sums[count] = partial[chunks][count], added up; without chunks, 0.
static inline cudaError_t AddChunks(cudaStream_t stream, int64_t chunks, int64_t count,
                                    const double* partial, double* sums) {
  AddChunksKernel<<<BlocksFor(count, kWarp), kThreads, 0, stream>>>(chunks, count, partial, sums);
  return cudaGetLastError();
}

// sums[Terms::kSums][width]; scratch: Terms::kSums * kRowParts * width doubles. Without rows, 0.
template <typename Terms>
cudaError_t SumColumns(cudaStream_t stream, int64_t rows, int64_t width, Terms terms,
                       double* scratch, double* sums) {
  const bool in_vectors = width % kVector == 0;
  const ColumnBlocks blocks(rows, width, in_vectors ? kVector : 1);
  const dim3 grid(static_cast<unsigned>(blocks.beside), static_cast<unsigned>(blocks.chunks));
  if (blocks.chunks > 0) {
    const auto kernel =
        in_vectors ? PartColumnsKernel<kVector, Terms> : PartColumnsKernel<1, Terms>;
    kernel<<<grid, kThreads, 0, stream>>>(rows, width, blocks, terms, scratch);
  }
  return AddChunks(stream, blocks.chunks, Terms::kSums * width, scratch, sums);
}

}  // namespace lockstep::cuda
