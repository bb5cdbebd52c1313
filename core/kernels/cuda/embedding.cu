#include "core/kernels/cuda/elements.cuh"
#include "core/kernels/cuda/embedding.h"
#include "core/kernels/cuda/reduce.cuh"

namespace lockstep::cuda {
namespace {

// kCount elements a thread; table and y have one dtype.
template <int kCount>
__global__ void EmbeddingKernel(int64_t elements, int64_t width, const int32_t* ids, Array table,
                                Array y) {
  const int64_t at = (int64_t{blockIdx.x} * blockDim.x + threadIdx.x) * kCount;
  if (at >= elements) return;
  const int64_t row = at / width, id = ids[row];
  float word[kCount];
  for (float& element : word) element = -0.0f;
  if (id >= 0) Load(table, id * width + (at - row * width), word);
  Store(y, at, word);
}

constexpr int kGroups = 4;                    // rows of a thread
constexpr int kScanned = kGroups * kThreads;  // rows that a block looks at together
constexpr int kWords = kScanned / kWarp;

// Rows of the kScanned ones from `begin` on, below `end`, that are of word `id`, in order; how many
// there are. By the whole block, which has passed a barrier when it has the answer.
__device__ int FindRows(const int32_t* ids, int32_t id, int64_t begin, int64_t end,
                        int (&found)[kScanned]) {
  __shared__ unsigned same[kWords];  // a bit for each row
  const int lane = threadIdx.x % kWarp, warp = threadIdx.x / kWarp;
  bool is_same[kGroups], any = false;
#pragma unroll
  for (int i = 0; i < kGroups; ++i) {
    const int64_t row = begin + i * kThreads + threadIdx.x;
    is_same[i] = row < end && ids[row] == id;
    any |= is_same[i];
  }
  if (!__syncthreads_or(any)) return 0;
  unsigned lanes[kGroups];
#pragma unroll
  for (int i = 0; i < kGroups; ++i) {
    lanes[i] = __ballot_sync(kAllLanes, is_same[i]);
    if (lane == 0) same[i * (kThreads / kWarp) + warp] = lanes[i];
  }
  __syncthreads();
  int before = 0, count[kGroups] = {};
  for (int word = 0; word < kWords; ++word) {
#pragma unroll
    for (int i = 0; i < kGroups; ++i) {
      if (word == i * (kThreads / kWarp) + warp) count[i] = before;
    }
    before += __popc(same[word]);
  }
#pragma unroll
  for (int i = 0; i < kGroups; ++i) {
    const int at = count[i] + __popc(lanes[i] & ((1u << lane) - 1));
    if (is_same[i]) found[at] = i * kThreads + static_cast<int>(threadIdx.x);
  }
  __syncthreads();
  return before;
}

// A block for each row; that of a word's first row adds up all of them, four under way at a time.
template <int kCount, typename T>
__global__ void EmbeddingBackwardKernel(int64_t rows, int64_t width, const int32_t* ids,
                                        const T* dy, Array dtable) {
  __shared__ int found[kScanned];
  const int64_t own = blockIdx.x;
  const int32_t id = ids[own];
  if (id < 0) return;
  // Backwards: of a frequent word there is a row close by.
  for (int64_t end = own; end > 0; end -= kScanned) {
    int earlier = 0;
#pragma unroll
    for (int i = 0; i < kGroups; ++i) {
      const int64_t row = end - 1 - i * kThreads - threadIdx.x;
      earlier |= row >= 0 && ids[row] == id;
    }
    if (__syncthreads_or(earlier)) return;
  }
  for (int64_t first = 0; first < width; first += kThreads * kCount) {
    const int64_t column = first + int64_t{threadIdx.x} * kCount;
    float sums[kCount] = {};
    for (int64_t begin = own; begin < rows; begin += kScanned) {
      const int count = FindRows(ids, id, begin, rows, found);
      if (column >= width) continue;
      const T* const from = dy + begin * width;
      constexpr int kAtOnce = 4;
      int k = 0;
      for (; k + kAtOnce <= count; k += kAtOnce) {
        float slopes[kAtOnce][kCount];
#pragma unroll
        for (int j = 0; j < kAtOnce; ++j) Load(from, found[k + j] * width + column, slopes[j]);
#pragma unroll
        for (int j = 0; j < kAtOnce; ++j) {
          for (int i = 0; i < kCount; ++i) sums[i] += slopes[j][i];
        }
      }
      for (; k < count; ++k) {
        float slopes[kCount];
        Load(from, found[k] * width + column, slopes);
        for (int i = 0; i < kCount; ++i) sums[i] += slopes[i];
      }
    }
    if (column >= width) continue;
    const int64_t at = int64_t{id} * width + column;
    float start[kCount];
    Load(dtable, at, start);
    for (int i = 0; i < kCount; ++i) sums[i] += start[i];
    Store(dtable, at, sums);
  }
}

__global__ void LocalIdsKernel(int64_t rows, const int32_t* ids, int64_t first, int64_t count,
                               int32_t* y) {
  const int64_t row = int64_t{blockIdx.x} * blockDim.x + threadIdx.x;
  if (row >= rows) return;
  const int64_t local = ids[row] - first;
  y[row] = local >= 0 && local < count ? static_cast<int32_t>(local) : -1;
}

// Blocks (positions, sample): kCount elements a thread.
template <int kCount>
__global__ void AddPositionsKernel(int64_t positions, Array x, Array table, Array y) {
  const int64_t i = (int64_t{blockIdx.x} * blockDim.x + threadIdx.x) * kCount;
  if (i >= positions) return;
  const int64_t at = blockIdx.y * positions + i;
  float sum[kCount], position[kCount];
  Load(x, at, sum);
  Load(table, i, position);
  for (int k = 0; k < kCount; ++k) sum[k] += position[k];
  Store(y, at, sum);
}

template <int kCount, typename T>
__global__ void AddPositionsBackwardKernel(int64_t batch, int64_t elements, const T* dy,
                                           Array dtable) {
  const int64_t i = (int64_t{blockIdx.x} * blockDim.x + threadIdx.x) * kCount;
  if (i >= elements) return;
  float sum[kCount] = {}, start[kCount];
#pragma unroll 4
  for (int64_t b = 0; b < batch; ++b) {
    float slopes[kCount];
    Load(dy, b * elements + i, slopes);
    for (int k = 0; k < kCount; ++k) sum[k] += slopes[k];
  }
  Load(dtable, i, start);
  for (int k = 0; k < kCount; ++k) sum[k] += start[k];
  Store(dtable, i, sum);
}

}  // namespace

cudaError_t Embedding(cudaStream_t stream, int64_t rows, int64_t width, const int32_t* ids,
                      Array table, Array y) {
  const int64_t elements = rows * width;
  if (elements == 0) return cudaSuccess;
  const int count = width % kVector == 0 ? kVector : 1;
  const auto kernel = count == 1 ? EmbeddingKernel<1> : EmbeddingKernel<kVector>;
  kernel<<<BlocksFor(elements, kThreads * count), kThreads, 0, stream>>>(elements, width, ids,
                                                                         table, y);
  return cudaGetLastError();
}

cudaError_t EmbeddingBackward(cudaStream_t stream, int64_t rows, int64_t width, const int32_t* ids,
                              Array dy, Array dtable) {
  if (rows == 0) return cudaSuccess;
  return WithType(dy, [&](const auto* slopes) {
    using T = ElementOf<decltype(slopes)>;
    const auto kernel =
        width % kVector == 0 ? EmbeddingBackwardKernel<kVector, T> : EmbeddingBackwardKernel<1, T>;
    kernel<<<rows, kThreads, 0, stream>>>(rows, width, ids, slopes, dtable);
    return cudaGetLastError();
  });
}

cudaError_t LocalIds(cudaStream_t stream, int64_t rows, const int32_t* ids, int64_t first,
                     int64_t count, int32_t* y) {
  if (rows == 0) return cudaSuccess;
  LocalIdsKernel<<<BlocksFor(rows, kThreads), kThreads, 0, stream>>>(rows, ids, first, count, y);
  return cudaGetLastError();
}

cudaError_t AddPositions(cudaStream_t stream, int64_t batch, int64_t time, int64_t width, Array x,
                         Array table, Array y) {
  const int64_t positions = time * width;
  if (batch * positions == 0) return cudaSuccess;
  const int count = positions % kVector == 0 ? kVector : 1;
  const auto kernel = count == 1 ? AddPositionsKernel<1> : AddPositionsKernel<kVector>;
  const dim3 blocks(static_cast<unsigned>(BlocksFor(positions, kThreads * count)),
                    static_cast<unsigned>(batch));
  kernel<<<blocks, kThreads, 0, stream>>>(positions, x, table, y);
  return cudaGetLastError();
}

cudaError_t AddPositionsBackward(cudaStream_t stream, int64_t batch, int64_t time, int64_t width,
                                 Array dy, Array dtable) {
  const int64_t elements = time * width;
  if (elements == 0) return cudaSuccess;
  return WithType(dy, [&](const auto* slopes) {
    using T = ElementOf<decltype(slopes)>;
    const int count = elements % kVector == 0 ? kVector : 1;
    const auto kernel =
        count == 1 ? AddPositionsBackwardKernel<1, T> : AddPositionsBackwardKernel<kVector, T>;
    kernel<<<BlocksFor(elements, kThreads * count), kThreads, 0, stream>>>(batch, elements, slopes,
                                                                           dtable);
    return cudaGetLastError();
  });
}

}  // namespace lockstep::cuda
