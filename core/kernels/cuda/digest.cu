#include <algorithm>
#include <cstdint>

#include "core/kernels/cuda/digest.h"
#include "core/kernels/cuda/elements.cuh"
#include "core/kernels/cuda/reduce.cuh"

namespace lockstep::cuda {
namespace {

// The finalizer of MurmurHash3: every bit of x changes half of the result's.
__device__ __forceinline__ unsigned long long Mix(unsigned long long x) {
  x = (x ^ (x >> 33)) * 0xff51afd7ed558ccdull;
  x = (x ^ (x >> 33)) * 0xc4ceb9fe1a85ec53ull;
  return x ^ (x >> 33);
}

__global__ void AddToDigestKernel(int64_t elements, Array x, uint64_t salt, Digest* digest) {
  unsigned long long bits = 0, telling = 0;
  const int64_t step = int64_t{gridDim.x} * blockDim.x;
  for (int64_t i = int64_t{blockIdx.x} * blockDim.x + threadIdx.x; i < elements; i += step) {
    const float value = LoadOne(x, i);
    bits += Mix(Mix(static_cast<uint64_t>(i) + salt) + __float_as_uint(value));
    telling += value - value == 0 && value != 0 ? 1 : 0;
  }
  bits = WarpReduce(bits, Plus{});
  telling = WarpReduce(telling, Plus{});
  if (threadIdx.x % kWarp != 0) return;
  atomicAdd(&digest->bits, bits);
  atomicAdd(&digest->telling, telling);
}

}  // namespace

cudaError_t AddToDigest(cudaStream_t stream, int64_t elements, Array x, uint64_t salt,
                        Digest* digest) {
  constexpr int64_t kMostBlocks = 1024;
  if (elements == 0) return cudaSuccess;
  AddToDigestKernel<<<std::min(BlocksFor(elements, kThreads), kMostBlocks), kThreads, 0, stream>>>(
      elements, x, salt, digest);
  return cudaGetLastError();
}

}  // namespace lockstep::cuda
