// Many tensors worked through by one launch.

#pragma once

#include <cstdint>
#include <span>

#include "core/kernels/cuda/elements.cuh"

namespace lockstep::cuda {

// An argument of a kernel may have 32,764 bytes; so many are left for others beside a batch.
constexpr int64_t kArgumentBytes = 32764, kOtherArgumentBytes = 128;

// The tensors of one launch, as an argument of the kernel: the device reads them without a copy
// that the host would have to wait for. T must have a field `elements`.
template <typename T>
struct TensorBatch {
  static constexpr int kMost = static_cast<int>(
      (kArgumentBytes - kOtherArgumentBytes - 2 * static_cast<int64_t>(sizeof(uint64_t))) /
      static_cast<int64_t>(sizeof(T) + sizeof(uint32_t)));

  int count = 0;
  uint32_t blocks = 0;               // of all tensors
  uint32_t first_block[kMost] = {};  // of each: ascending, as none is empty
  T tensors[kMost] = {};
};

// The last tensor that begins at or before the block.
template <typename T>
__device__ int TensorOf(const TensorBatch<T>& batch, uint32_t block) {
  int low = 0, high = batch.count;  // it is in [low, high)
  while (high - low > 1) {
    const int middle = (low + high) / 2;
    (batch.first_block[middle] <= block ? low : high) = middle;
  }
  return low;
}

// Calls launch(batch) for all tensors that are not empty, as many at a time as a batch holds, each
// with a block for `block_elements` of its elements.
template <typename T, typename Launch>
cudaError_t ForBatches(std::span<const T> tensors, int64_t block_elements, Launch launch) {
  static_assert(sizeof(TensorBatch<T>) + kOtherArgumentBytes <= kArgumentBytes);
  TensorBatch<T> batch;
  for (const T& tensor : tensors) {
    if (tensor.elements == 0) continue;
    if (batch.count == TensorBatch<T>::kMost) {
      const cudaError_t error = launch(batch);
      if (error != cudaSuccess) return error;
      batch.count = 0;
      batch.blocks = 0;
    }
    batch.first_block[batch.count] = batch.blocks;
    batch.tensors[batch.count++] = tensor;
    batch.blocks += static_cast<uint32_t>(BlocksFor(tensor.elements, block_elements));
  }
  return batch.count == 0 ? cudaSuccess : launch(batch);
}

}  // namespace lockstep::cuda
