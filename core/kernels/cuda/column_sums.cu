#include "core/kernels/cuda/column_sums.cuh"
#include "core/kernels/cuda/column_sums.h"

namespace lockstep::cuda {
namespace {

template <typename T>
struct Element {
  static constexpr int kSums = 1;
  const T* x;
  int64_t width;
  template <int kCount>
  __device__ void operator()(int64_t row, int64_t column, float (&out)[1][kCount]) const {
    Load(x, row * width + column, out[0]);
  }
};

__global__ void WriteSumsKernel(int64_t width, const double* sums, Write write, Array gradient) {
  const int64_t c = int64_t{blockIdx.x} * blockDim.x + threadIdx.x;
  if (c >= width) return;
  const float sum = static_cast<float>(sums[c]);
  StoreOne(gradient, c, write == Write::kAccumulate ? LoadOne(gradient, c) + sum : sum);
}

}  // namespace

cudaError_t WriteSums(cudaStream_t stream, int64_t width, const double* sums, Write write,
                      Array gradient) {
  WriteSumsKernel<<<BlocksFor(width, kThreads), kThreads, 0, stream>>>(width, sums, write,
                                                                       gradient);
  return cudaGetLastError();
}

cudaError_t ColumnSums(cudaStream_t stream, int64_t rows, int64_t width, Array x, double* scratch,
                       Write write, Array sums) {
  double* const totals = scratch + 2 * kRowParts * width;
  const cudaError_t error = WithType(x, [&](const auto* data) {
    return SumColumns(stream, rows, width, Element{data, width}, scratch, totals);
  });
  return error != cudaSuccess ? error : WriteSums(stream, width, totals, write, sums);
}

}  // namespace lockstep::cuda
