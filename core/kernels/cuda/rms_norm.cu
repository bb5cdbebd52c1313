#include "core/kernels/cuda/column_sums.cuh"
#include "core/kernels/cuda/elements.cuh"
#include "core/kernels/cuda/reduce.cuh"
#include "core/kernels/cuda/rms_norm.h"
#include "core/kernels/cuda/warp_rows.cuh"

namespace lockstep::cuda {
namespace {

template <int kCount>
__global__ void ForwardKernel(int64_t rows, int64_t width, Array x, Array scale, float epsilon,
                              Array y, float* inverse_rms) {
  const int64_t row = WarpRow();
  if (row >= rows) return;
  float squares = 0;
  ForColumns<kCount>(width, [&](int64_t c) {
    float in[kCount];
    Load(x, row * width + c, in);
    for (int i = 0; i < kCount; ++i) squares += in[i] * in[i];
  });
  const float mean = WarpReduce(squares, Plus{}) / static_cast<float>(width);
  const float inverse = 1.0f / sqrtf(mean + epsilon);
  ForColumns<kCount>(width, [&](int64_t c) {
    float in[kCount], gamma[kCount], out[kCount];
    Load(x, row * width + c, in);
    Load(scale, c, gamma);
    for (int i = 0; i < kCount; ++i) out[i] = in[i] * inverse * gamma[i];
    Store(y, row * width + c, out);
  });
  if (threadIdx.x % kWarp == 0) inverse_rms[row] = inverse;
}

// With g = dy * scale and n = x * inverse_rms: dx = inverse_rms * (g - n * mean of g n).
template <int kCount>
__global__ void InputGradientKernel(RmsNormInputs n, Array residual, Array dx) {
  const int64_t row = WarpRow(), width = n.width;
  if (row >= n.rows) return;
  const float inverse = n.inverse_rms[row];
  float products = 0;
  ForColumns<kCount>(width, [&](int64_t c) {
    float in[kCount], slopes[kCount], gamma[kCount];
    Load(n.x, row * width + c, in);
    Load(n.dy, row * width + c, slopes);
    Load(n.scale, c, gamma);
    for (int i = 0; i < kCount; ++i) products += slopes[i] * gamma[i] * (in[i] * inverse);
  });
  const float mean = WarpReduce(products, Plus{}) / static_cast<float>(width);
  ForColumns<kCount>(width, [&](int64_t c) {
    float in[kCount], slopes[kCount], gamma[kCount], add[kCount] = {}, out[kCount];
    Load(n.x, row * width + c, in);
    Load(n.dy, row * width + c, slopes);
    Load(n.scale, c, gamma);
    if (residual.data != nullptr) Load(residual, row * width + c, add);
    for (int i = 0; i < kCount; ++i) {
      out[i] = add[i] + inverse * (slopes[i] * gamma[i] - in[i] * inverse * mean);
    }
    Store(dx, row * width + c, out);
  });
}

struct ScaleTerms {
  static constexpr int kSums = 1;
  RmsNormInputs n;
  template <int kCount>
  __device__ void operator()(int64_t row, int64_t column, float (&out)[1][kCount]) const {
    const int64_t at = row * n.width + column;
    const float inverse = n.inverse_rms[row];
    float in[kCount];
    Load(n.x, at, in);
    Load(n.dy, at, out[0]);
    for (int i = 0; i < kCount; ++i) out[0][i] *= in[i] * inverse;
  }
};

}  // namespace

cudaError_t RmsNorm(cudaStream_t stream, int64_t rows, int64_t width, Array x, Array scale,
                    float epsilon, Array y, float* inverse_rms) {
  if (rows == 0) return cudaSuccess;
  const auto kernel = width % kVector == 0 ? ForwardKernel<kVector> : ForwardKernel<1>;
  kernel<<<BlocksFor(rows, kRowsOfBlock), kRowsOfBlock * kWarp, 0, stream>>>(
      rows, width, x, scale, epsilon, y, inverse_rms);
  return cudaGetLastError();
}

cudaError_t RmsNormInputGradient(cudaStream_t stream, RmsNormInputs inputs, Array residual,
                                 Array dx) {
  if (inputs.rows == 0) return cudaSuccess;
  const auto kernel =
      inputs.width % kVector == 0 ? InputGradientKernel<kVector> : InputGradientKernel<1>;
  kernel<<<BlocksFor(inputs.rows, kRowsOfBlock), kRowsOfBlock * kWarp, 0, stream>>>(inputs,
                                                                                    residual, dx);
  return cudaGetLastError();
}

cudaError_t RmsNormSums(cudaStream_t stream, RmsNormInputs inputs, double* scratch, double* sums) {
  return SumColumns(stream, inputs.rows, inputs.width, ScaleTerms{inputs}, scratch, sums);
}

}  // namespace lockstep::cuda
