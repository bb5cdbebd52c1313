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

}  // namespace lockstep::emulation
