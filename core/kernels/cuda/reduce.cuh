// Sums and maxima over the threads of a warp or a block, in one order: two runs agree to the bit.

#pragma once

#include "cuda_runtime.h"

namespace lockstep::cuda {

constexpr int kWarp = 32;
constexpr int kMaxWarps = 32;  // of a block
constexpr unsigned kAllLanes = 0xffffffffu;

struct Plus {
  template <typename T>
  __device__ T operator()(T a, T b) const {
    return a + b;
  }
};

struct Larger {
  template <typename T>
  __device__ T operator()(T a, T b) const {
    return b > a ? b : a;
  }
};

struct Smaller {
  template <typename T>
  __device__ T operator()(T a, T b) const {
    return b < a ? b : a;
  }
};

// The values of all 32 lanes, combined; every lane gets the same. `op` is commutative.
template <typename T, typename Op>
__device__ __forceinline__ T WarpReduce(T value, Op op) {
  for (int distance = kWarp / 2; distance > 0; distance /= 2) {
    value = op(value, __shfl_xor_sync(kAllLanes, value, distance));
  }
  return value;
}

// The values of all threads of a block of whole warps, combined; every thread gets the same, and
// has passed two barriers.
template <typename T, typename Op>
__device__ T BlockReduce(T value, Op op) {
  __shared__ T of_warps[kMaxWarps];
  value = WarpReduce(value, op);
  if (threadIdx.x % kWarp == 0) of_warps[threadIdx.x / kWarp] = value;
  __syncthreads();
  T result = of_warps[0];
  for (int warp = 1; warp < static_cast<int>(blockDim.x) / kWarp; ++warp) {
    result = op(result, of_warps[warp]);
  }
  __syncthreads();
  return result;
}

}  // namespace lockstep::cuda
