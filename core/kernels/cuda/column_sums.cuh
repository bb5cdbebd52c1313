// Sums down the columns of a matrix [rows, width], two for each column: in fp32 over short runs of
// rows, in double over these, in one order.

#pragma once

#include <cstdint>

#include "core/kernels/cuda/column_sums.h"
#include "core/kernels/cuda/elements.cuh"

namespace lockstep::cuda {

constexpr int64_t kFloatRows = 64;  // of a run in fp32
constexpr int kColumnThreads = 128;

inline int64_t RowsOfPart(int64_t rows) {
  const int64_t even = BlocksFor(rows, kRowParts);
  return BlocksFor(even < kFloatRows ? kFloatRows : even, kFloatRows) * kFloatRows;
}

// partial[part][2][width] = the sums of terms(row, column, first, second) over the part's rows.
template <typename Terms>
__global__ void PartColumnsKernel(int64_t rows, int64_t rows_of_part, int64_t width, Terms terms,
                                  double* partial) {
  const int64_t column = int64_t{blockIdx.x} * blockDim.x + threadIdx.x, part = blockIdx.y;
  if (column >= width) return;
  const int64_t begin = part * rows_of_part;
  const int64_t end = begin + rows_of_part < rows ? begin + rows_of_part : rows;
  double first_total = 0, second_total = 0;
  for (int64_t run = begin; run < end; run += kFloatRows) {
    const int64_t run_end = run + kFloatRows < end ? run + kFloatRows : end;
    float first_sum = 0, second_sum = 0;
    for (int64_t row = run; row < run_end; ++row) {
      float first, second;
      terms(row, column, first, second);
      first_sum += first;
      second_sum += second;
    }
    first_total += first_sum;
    second_total += second_sum;
  }
  partial[(part * 2) * width + column] = first_total;
  partial[(part * 2 + 1) * width + column] = second_total;
}

// sums[i] = the parts' partial[part][i], added up; static, as every source has its own.
static __global__ void AddPartsKernel(int64_t parts, int64_t count, const double* partial,
                                      double* sums) {
  const int64_t i = int64_t{blockIdx.x} * blockDim.x + threadIdx.x;
  if (i >= count) return;
  double sum = 0;
  for (int64_t part = 0; part < parts; ++part) sum += partial[part * count + i];
  sums[i] = sum;
}

// sums[2][width]; scratch: 2 * kRowParts * width doubles. Of no rows, 0.
template <typename Terms>
cudaError_t ColumnSumPairs(cudaStream_t stream, int64_t rows, int64_t width, Terms terms,
                           double* scratch, double* sums) {
  const int64_t rows_of_part = RowsOfPart(rows), parts = BlocksFor(rows, rows_of_part);
  const dim3 blocks(static_cast<unsigned>(BlocksFor(width, kColumnThreads)),
                    static_cast<unsigned>(parts));
  if (parts > 0) {
    PartColumnsKernel<<<blocks, kColumnThreads, 0, stream>>>(rows, rows_of_part, width, terms,
                                                             scratch);
  }
  AddPartsKernel<<<BlocksFor(2 * width, kColumnThreads), kColumnThreads, 0, stream>>>(
      parts, 2 * width, scratch, sums);
  return cudaGetLastError();
}

}  // namespace lockstep::cuda
