// A thread for each item of a count.

#pragma once

#include <cstdint>

#include "core/kernels/cuda/elements.cuh"
#include "cuda_runtime.h"

namespace lockstep::cuda {

template <typename Function>
__global__ void ForEachKernel(int64_t count, Function f) {
  const int64_t i = int64_t{blockIdx.x} * blockDim.x + threadIdx.x;
  if (i < count) f(i);
}

// Calls f(i) in a thread for each i below `count`.
template <typename Function>
cudaError_t ForEach(cudaStream_t stream, int64_t count, Function f) {
  if (count == 0) return cudaSuccess;
  ForEachKernel<<<BlocksFor(count, kThreads), kThreads, 0, stream>>>(count, f);
  return cudaGetLastError();
}

}  // namespace lockstep::cuda
