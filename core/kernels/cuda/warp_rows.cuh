// Rows that a warp each has: how normalisations and routers walk over them.

#pragma once

#include <cstdint>

#include "core/kernels/cuda/reduce.cuh"
#include "cuda_runtime.h"

namespace lockstep::cuda {

constexpr int kRowsOfBlock = 4;  // a warp each

// The row of the calling warp.
__device__ __forceinline__ int64_t WarpRow() {
  return int64_t{blockIdx.x} * kRowsOfBlock + threadIdx.x / kWarp;
}

// Calls f(column) for the columns that the calling lane has, kCount from each.
template <int kCount, typename Function>
__device__ __forceinline__ void ForColumns(int64_t width, Function&& f) {
  for (int64_t c = threadIdx.x % kWarp * kCount; c < width; c += kWarp * kCount) f(c);
}

}  // namespace lockstep::cuda
