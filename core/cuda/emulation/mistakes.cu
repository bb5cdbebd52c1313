#include "core/cuda/emulation/mistakes.h"
#include "cuda_runtime.h"

namespace lockstep::emulation {
namespace {

constexpr int kThreads = 256;

__global__ void FillKernel(float* x, int64_t count, float value) {
  const int64_t i = int64_t{blockIdx.x} * blockDim.x + threadIdx.x;
  if (i < count) x[i] = value;
}

__global__ void VectorKernel(const float* x, float* y) {
  reinterpret_cast<uint4*>(y)[threadIdx.x] = reinterpret_cast<const uint4*>(x)[threadIdx.x];
}

__global__ void ReverseKernel(float* x, Barrier barrier) {
  extern __shared__ float shared[];
  shared[threadIdx.x] = static_cast<float>(threadIdx.x);
  if (barrier == Barrier::kWhole) __syncthreads();
  // A lane that the others wait for and that never comes.
  if (barrier == Barrier::kAwaitsTheWarp && threadIdx.x % 32 != 0) __syncwarp();
  if (barrier == Barrier::kAwaitsTheWarp) return;
  x[threadIdx.x] = shared[kThreads - 1 - threadIdx.x];
}

// The lanes of each pair swap what they have, with or without a barrier of the warp in between.
__global__ void SwapKernel(float* x, bool synchronizes) {
  __shared__ float shared[kThreads];
  shared[threadIdx.x] = static_cast<float>(threadIdx.x);
  if (synchronizes) __syncwarp();
  x[threadIdx.x] = shared[threadIdx.x ^ 1];
}

__global__ void SharedKernel(float* x, int64_t written, int64_t read) {
  extern __shared__ float shared[];
  if (written >= 0) shared[written] = 1;
  x[threadIdx.x] = shared[read];
}

__global__ void ShuffleKernel(float* x, unsigned mask) {
  if ((mask >> threadIdx.x & 1) == 0) return;
  x[threadIdx.x] = __shfl_xor_sync(mask, x[threadIdx.x], 1);
}

__global__ void AsyncCopyKernel(const float* x, float* y, CopyWait wait) {
  __shared__ float shared[1];
  asm volatile("cp.async.ca.shared.global [%0], [%1], 4, %2;" ::"r"(
                   static_cast<uint32_t>(__cvta_generic_to_shared(shared))),
               "l"(x), "r"(4)
               : "memory");
  if (wait == CopyWait::kBeforeUse) asm volatile("cp.async.wait_all;" ::: "memory");
  *y = shared[0];
  if (wait == CopyWait::kAfterUse) asm volatile("cp.async.wait_all;" ::: "memory");
}

#ifndef __CUDACC__  // nvcc itself refuses such an argument
__global__ void ArgumentKernel(const LargeArgument argument, float* x) { *x = argument.values[0]; }
#endif

}  // namespace

void FillElements(cudaStream_t stream, float* x, int64_t count, float value) {
  FillKernel<<<(count + kThreads - 1) / kThreads, kThreads, 0, stream>>>(x, count, value);
}

void CopyVectors(cudaStream_t stream, const float* x, float* y, int threads) {
  VectorKernel<<<1, threads, 0, stream>>>(x, y);
}

void Reverse(cudaStream_t stream, float* x, Barrier barrier, int64_t shared_bytes) {
  ReverseKernel<<<1, kThreads, shared_bytes, stream>>>(x, barrier);
}

void SwapLanes(cudaStream_t stream, float* x, bool synchronizes) {
  SwapKernel<<<1, kThreads, 0, stream>>>(x, synchronizes);
}

void UseShared(cudaStream_t stream, float* x, int64_t written, int64_t read) {
  SharedKernel<<<1, 1, kSharedElements * sizeof(float), stream>>>(x, written, read);
}

void ShuffleLanes(cudaStream_t stream, float* x, unsigned mask) {
  ShuffleKernel<<<1, 32, 0, stream>>>(x, mask);
}

void CopyOverShared(cudaStream_t stream, const float* x, float* y, CopyWait wait) {
  AsyncCopyKernel<<<1, 1, 0, stream>>>(x, y, wait);
}

#ifndef __CUDACC__
void PassLargeArgument(cudaStream_t stream, const LargeArgument& argument, float* x) {
  ArgumentKernel<<<1, 1, 0, stream>>>(argument, x);
}
#endif

}  // namespace lockstep::emulation
