// Sums down the columns of a matrix [rows, width], one or two for each column: in fp32 over short
// runs of rows, in double over these. The order is the same for a column of a narrow matrix as of a
// wide one, so that ranks that divide a layer's columns have the bits of one that holds them all.

#pragma once

#include <cstdint>

#include "core/kernels/cuda/column_sums.h"
#include "core/kernels/cuda/elements.cuh"
#include "core/kernels/cuda/reduce.cuh"

namespace lockstep::cuda {

constexpr int kFloatRows = 64;  // of a run in fp32
constexpr int kAtOnce = 4;      // rows that a thread has under way

// Rows are cut into chunks, by their number alone, and every kDown-th row of a chunk goes into one
// sum. A block has some columns of one chunk, or of several where the matrix is narrow: `across`
// threads beside each other have kCount columns each, kDown such rows of threads a chunk.
struct ColumnBlocks {
  static constexpr int kDown = kThreads / kWarp;

  int64_t rows_of_chunk, chunks;
  int across;      // a power of two up to kWarp
  int64_t beside;  // blocks

  ColumnBlocks(int64_t rows, int64_t width, int count) : across(1) {
    constexpr int64_t kRowsOfThread = 16;  // at least: enough loads under way, few chunks
    const int64_t even = BlocksFor(rows, kRowParts);
    rows_of_chunk = even < kDown * kRowsOfThread ? kDown * kRowsOfThread : even;
    chunks = BlocksFor(rows, rows_of_chunk);
    while (across < kWarp && across * count < width) across *= 2;
    beside = BlocksFor(width, across * count);
  }

  // Chunks of a block.
  __host__ __device__ int64_t together() const { return kWarp / across; }
};

// Adds the terms of kRows rows, kDown apart. All of them are loaded before the first is added.
template <int kRows, int kCount, int kSums, typename Terms>
__device__ __forceinline__ void AddRows(const Terms& terms, int64_t row, int64_t column,
                                        float (&sums)[kSums][kCount]) {
  float out[kRows][kSums][kCount];
#pragma unroll
  for (int r = 0; r < kRows; ++r) terms(row + r * ColumnBlocks::kDown, column, out[r]);
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
  constexpr int kSums = Terms::kSums, kDown = ColumnBlocks::kDown;
  __shared__ double of_threads[kSums * kCount][kThreads];
  const int across = blocks.across, thread = static_cast<int>(threadIdx.x);
  const int x = thread % across, y = thread / across % kDown, z = thread / across / kDown;
  const int64_t column = (int64_t{blockIdx.x} * across + x) * kCount;
  const int64_t first_chunk = blockIdx.y * blocks.together();
  const int64_t begin = (first_chunk + z) * blocks.rows_of_chunk;
  const int64_t end = begin + blocks.rows_of_chunk < rows ? begin + blocks.rows_of_chunk : rows;
  double totals[kSums][kCount] = {};
  if (column < width) {
    for (int64_t run = begin + y; run < end; run += kFloatRows * kDown) {
      const int64_t run_end = run + kFloatRows * kDown < end ? run + kFloatRows * kDown : end;
      float sums[kSums][kCount] = {};
      int64_t row = run;
      for (; row + (kAtOnce - 1) * kDown < run_end; row += kAtOnce * kDown) {
        AddRows<kAtOnce>(terms, row, column, sums);
      }
      for (; row < run_end; row += kDown) AddRows<1>(terms, row, column, sums);
      for (int s = 0; s < kSums; ++s) {
        for (int i = 0; i < kCount; ++i) totals[s][i] += sums[s][i];
      }
    }
  }
  for (int s = 0; s < kSums; ++s) {
    for (int i = 0; i < kCount; ++i) of_threads[s * kCount + i][thread] = totals[s][i];
  }
  __syncthreads();
  // A thread adds up a chunk's sums of a column, of its rows in their order.
  for (int j = thread; j < kSums * kCount * kWarp; j += kThreads) {
    const int from = j % across, which = j / kWarp, of_block = j % kWarp / across;
    const int64_t c = (int64_t{blockIdx.x} * across + from) * kCount + which % kCount;
    const int64_t chunk = first_chunk + of_block;
    if (c >= width || chunk >= blocks.chunks) continue;
    double sum = 0;
    for (int k = 0; k < kDown; ++k)
      sum += of_threads[which][(of_block * kDown + k) * across + from];
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
  const dim3 grid(static_cast<unsigned>(blocks.beside),
                  static_cast<unsigned>(BlocksFor(blocks.chunks, blocks.together())));
  if (blocks.chunks > 0) {
    const auto kernel =
        in_vectors ? PartColumnsKernel<kVector, Terms> : PartColumnsKernel<1, Terms>;
    kernel<<<grid, kThreads, 0, stream>>>(rows, width, blocks, terms, scratch);
  }
  return AddChunks(stream, blocks.chunks, Terms::kSums * width, scratch, sums);
}

}  // namespace lockstep::cuda
