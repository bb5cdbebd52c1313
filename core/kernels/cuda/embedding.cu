#include "core/kernels/cuda/embedding.h"

#include "core/kernels/cuda/elements.cuh"
#include "core/kernels/cuda/reduce.cuh"

namespace lockstep::cuda {
namespace {

__global__ void EmbeddingKernel(int64_t width, const int32_t* ids, Array table, Array y) {
  const int64_t row = blockIdx.x, id = ids[row];
  for (int64_t c = threadIdx.x; c < width; c += blockDim.x) {
    StoreOne(y, row * width + c, id < 0 ? 0 : LoadOne(table, id * width + c));
  }
}

constexpr int kColumns = 4;  // of a thread

// A block for each row; that of a word's first row adds up all of them.
__global__ void EmbeddingBackwardKernel(int64_t rows, int64_t width, const int32_t* ids, Array dy,
                                        Array dtable) {
  __shared__ unsigned same[kThreads / kWarp];  // a bit for each of kThreads rows
  const int64_t own = blockIdx.x;
  const int32_t id = ids[own];
  if (id < 0) return;
  int earlier = 0;
  for (int64_t row = threadIdx.x; row < own && !earlier; row += kThreads) earlier = ids[row] == id;
  if (__syncthreads_or(earlier)) return;
  for (int64_t first = 0; first < width; first += kThreads * kColumns) {
    float sums[kColumns] = {};
    for (int64_t begin = own; begin < rows; begin += kThreads) {
      const int64_t row = begin + threadIdx.x;
      const unsigned lanes = __ballot_sync(kAllLanes, row < rows && ids[row] == id);
      if (threadIdx.x % kWarp == 0) same[threadIdx.x / kWarp] = lanes;
      __syncthreads();
      for (int warp = 0; warp < kThreads / kWarp; ++warp) {
        for (unsigned left = same[warp]; left != 0; left &= left - 1) {
          const int64_t from = (begin + warp * kWarp + __ffs(static_cast<int>(left)) - 1) * width;
          for (int i = 0; i < kColumns; ++i) {
            const int64_t c = first + i * kThreads + threadIdx.x;
            if (c < width) sums[i] += LoadOne(dy, from + c);
          }
        }
      }
      __syncthreads();
    }
    for (int i = 0; i < kColumns; ++i) {
      const int64_t c = first + i * kThreads + threadIdx.x;
      if (c >= width) continue;
      const int64_t at = int64_t{id} * width + c;
      StoreOne(dtable, at, LoadOne(dtable, at) + sums[i]);
    }
  }
}

__global__ void LocalIdsKernel(int64_t rows, const int32_t* ids, int64_t first, int64_t count,
                               int32_t* y) {
  const int64_t row = int64_t{blockIdx.x} * blockDim.x + threadIdx.x;
  if (row >= rows) return;
  const int64_t local = ids[row] - first;
  y[row] = local >= 0 && local < count ? static_cast<int32_t>(local) : -1;
}

__global__ void AddPositionsKernel(int64_t elements, int64_t positions, Array x, Array table,
                                   Array y) {
  const int64_t i = int64_t{blockIdx.x} * blockDim.x + threadIdx.x;
  if (i < elements) StoreOne(y, i, LoadOne(x, i) + LoadOne(table, i % positions));
}

__global__ void AddPositionsBackwardKernel(int64_t batch, int64_t elements, Array dy,
                                           Array dtable) {
  const int64_t i = int64_t{blockIdx.x} * blockDim.x + threadIdx.x;
  if (i >= elements) return;
  float sum = 0;
  for (int64_t b = 0; b < batch; ++b) sum += LoadOne(dy, b * elements + i);
  StoreOne(dtable, i, LoadOne(dtable, i) + sum);
}

}  // namespace

cudaError_t Embedding(cudaStream_t stream, int64_t rows, int64_t width, const int32_t* ids,
                      Array table, Array y) {
  if (rows == 0) return cudaSuccess;
  EmbeddingKernel<<<rows, kThreads, 0, stream>>>(width, ids, table, y);
  return cudaGetLastError();
}

cudaError_t EmbeddingBackward(cudaStream_t stream, int64_t rows, int64_t width, const int32_t* ids,
                              Array dy, Array dtable) {
  if (rows == 0) return cudaSuccess;
  EmbeddingBackwardKernel<<<rows, kThreads, 0, stream>>>(rows, width, ids, dy, dtable);
  return cudaGetLastError();
}

cudaError_t LocalIds(cudaStream_t stream, int64_t rows, const int32_t* ids, int64_t first,
                     int64_t count, int32_t* y) {
  if (rows == 0) return cudaSuccess;
  LocalIdsKernel<<<BlocksFor(rows, kThreads), kThreads, 0, stream>>>(rows, ids, first, count, y);
  return cudaGetLastError();
}

cudaError_t AddPositions(cudaStream_t stream, int64_t batch, int64_t time, int64_t width, Array x,
                         Array table, Array y) {
  const int64_t positions = time * width, elements = batch * positions;
  if (elements == 0) return cudaSuccess;
  AddPositionsKernel<<<BlocksFor(elements, kThreads), kThreads, 0, stream>>>(elements, positions, x,
                                                                             table, y);
  return cudaGetLastError();
}

cudaError_t AddPositionsBackward(cudaStream_t stream, int64_t batch, int64_t time, int64_t width,
                                 Array dy, Array dtable) {
  const int64_t elements = time * width;
  if (elements == 0) return cudaSuccess;
  AddPositionsBackwardKernel<<<BlocksFor(elements, kThreads), kThreads, 0, stream>>>(
      batch, elements, dy, dtable);
  return cudaGetLastError();
}

}  // namespace lockstep::cuda
