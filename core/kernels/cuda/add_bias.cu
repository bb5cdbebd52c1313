#include "core/kernels/cuda/add_bias.h"
#include "core/kernels/cuda/elements.cuh"

namespace lockstep::cuda {
namespace {

template <int kCount>
__global__ void AddBiasKernel(int64_t elements, int64_t width, Array x, Array bias, Array residual,
                              Array y) {
  const int64_t at = (int64_t{blockIdx.x} * blockDim.x + threadIdx.x) * kCount;
  if (at >= elements) return;
  float sum[kCount], shift[kCount] = {}, more[kCount] = {};
  Load(x, at, sum);
  if (bias.data != nullptr) Load(bias, at % width, shift);
  if (residual.data != nullptr) Load(residual, at, more);
  for (int i = 0; i < kCount; ++i) sum[i] = sum[i] + shift[i] + more[i];
  Store(y, at, sum);
}

}  // namespace

cudaError_t AddBias(cudaStream_t stream, int64_t rows, int64_t width, Array x, Array bias,
                    Array residual, Array y) {
  const int64_t elements = rows * width;
  if (elements == 0) return cudaSuccess;
  if (width % kVector == 0) {
    AddBiasKernel<kVector><<<BlocksFor(elements, kThreads * kVector), kThreads, 0, stream>>>(
        elements, width, x, bias, residual, y);
  } else {
    AddBiasKernel<1><<<BlocksFor(elements, kThreads), kThreads, 0, stream>>>(elements, width, x,
                                                                             bias, residual, y);
  }
  return cudaGetLastError();
}

}  // namespace lockstep::cuda
