// How attention's kernels on tensor cores are chosen and started.

#pragma once

#include <cstdint>

#include "core/kernels/cuda/attention_tiles.cuh"
#include "core/kernels/cuda/elements.cuh"
#include "core/kernels/options.h"
#include "cuda_runtime.h"

namespace lockstep::cuda {

// What a kernel is compiled for.
template <typename T, int width>
struct HeadOf {
  using Element = T;
  static constexpr int kWidth = width;
};

// f(HeadOf<...>{}) for the one of the four kinds.
template <typename Function>
cudaError_t ForHeads(const Attention& attention, DType dtype, Function&& f) {
  if (dtype == DType::kBF16) {
    return attention.head_width == 64 ? f(HeadOf<__nv_bfloat16, 64>{})
                                      : f(HeadOf<__nv_bfloat16, 128>{});
  }
  return attention.head_width == 64 ? f(HeadOf<__half, 64>{}) : f(HeadOf<__half, 128>{});
}

// Blocks (tile of `rows` rows, head, sequence).
inline dim3 HeadBlocks(const Attention& attention, int64_t batch, int64_t time, int64_t rows) {
  return dim3(static_cast<unsigned>(BlocksFor(time, rows)), static_cast<unsigned>(attention.heads),
              static_cast<unsigned>(batch));
}

// Kernels have 48 KiB of shared memory unless they ask for more.
template <typename... Parameters, typename... Arguments>
cudaError_t Launch(void (*kernel)(Parameters...), dim3 blocks, int shared_bytes,
                   cudaStream_t stream, const Arguments&... arguments) {
  const cudaError_t error =
      cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, shared_bytes);
  if (error != cudaSuccess) return error;
  kernel<<<blocks, kTileThreads, shared_bytes, stream>>>(arguments...);
  return cudaGetLastError();
}

}  // namespace lockstep::cuda
