#include "core/kernels/cuda/column_sums.cuh"
#include "core/kernels/cuda/elements.cuh"
#include "core/kernels/cuda/layer_norm.h"
#include "core/kernels/cuda/reduce.cuh"

namespace lockstep::cuda {
namespace {

constexpr int kRowsOfBlock = 4;  // a warp each

// The row of the calling warp.
__device__ int64_t WarpRow() { return int64_t{blockIdx.x} * kRowsOfBlock + threadIdx.x / kWarp; }

// Calls f(column) for the columns that the calling lane has, kCount from each.
template <int kCount, typename Function>
__device__ void ForColumns(int64_t width, Function&& f) {
  for (int64_t c = threadIdx.x % kWarp * kCount; c < width; c += kWarp * kCount) f(c);
}

template <int kCount>
__global__ void ForwardKernel(int64_t rows, int64_t width, Array x, Array scale, Array shift,
                              float epsilon, Array y, float* mean, float* inverse_stddev) {
  const int64_t row = WarpRow();
  if (row >= rows) return;
  float sum = 0;
  ForColumns<kCount>(width, [&](int64_t c) {
    float in[kCount];
    Load(x, row * width + c, in);
    for (int i = 0; i < kCount; ++i) sum += in[i];
  });
  const float center = WarpReduce(sum, Plus{}) / static_cast<float>(width);
  float squares = 0;
  ForColumns<kCount>(width, [&](int64_t c) {
    float in[kCount];
    Load(x, row * width + c, in);
    for (int i = 0; i < kCount; ++i) squares += (in[i] - center) * (in[i] - center);
  });
  const float variance = WarpReduce(squares, Plus{}) / static_cast<float>(width);
  const float inverse = 1.0f / sqrtf(variance + epsilon);
  ForColumns<kCount>(width, [&](int64_t c) {
    float in[kCount], gamma[kCount], beta[kCount], out[kCount];
    Load(x, row * width + c, in);
    Load(scale, c, gamma);
    Load(shift, c, beta);
    for (int i = 0; i < kCount; ++i) out[i] = (in[i] - center) * inverse * gamma[i] + beta[i];
    Store(y, row * width + c, out);
  });
  if (threadIdx.x % kWarp == 0) {
    mean[row] = center;
    inverse_stddev[row] = inverse;
  }
}

template <int kCount>
__global__ void InputGradientKernel(LayerNormInputs n, Array residual, Array dx) {
  const int64_t row = WarpRow(), width = n.width;
  if (row >= n.rows) return;
  const float center = n.mean[row], inverse = n.inverse_stddev[row];
  float sum = 0, products = 0;
  ForColumns<kCount>(width, [&](int64_t c) {
    float in[kCount], slopes[kCount], gamma[kCount];
    Load(n.x, row * width + c, in);
    Load(n.dy, row * width + c, slopes);
    Load(n.scale, c, gamma);
    for (int i = 0; i < kCount; ++i) {
      const float g = slopes[i] * gamma[i];
      sum += g;
      products += g * ((in[i] - center) * inverse);
    }
  });
  const float mean_g = WarpReduce(sum, Plus{}) / static_cast<float>(width);
  const float mean_product = WarpReduce(products, Plus{}) / static_cast<float>(width);
  ForColumns<kCount>(width, [&](int64_t c) {
    float in[kCount], slopes[kCount], gamma[kCount], add[kCount] = {}, out[kCount];
    Load(n.x, row * width + c, in);
    Load(n.dy, row * width + c, slopes);
    Load(n.scale, c, gamma);
    if (residual.data != nullptr) Load(residual, row * width + c, add);
    for (int i = 0; i < kCount; ++i) {
      const float normalized = (in[i] - center) * inverse;
      out[i] = add[i] + inverse * (slopes[i] * gamma[i] - mean_g - normalized * mean_product);
    }
    Store(dx, row * width + c, out);
  });
}

// Slopes: a pointer of one type for x and dy, or Array.
template <typename Slopes>
struct GradientTerms {
  static constexpr int kSums = 2;
  LayerNormInputs n;
  Slopes x, dy;
  template <int kCount>
  __device__ void operator()(int64_t row, int64_t column, float (&out)[2][kCount]) const {
    const int64_t at = row * n.width + column;
    const float center = n.mean[row], inverse = n.inverse_stddev[row];
    float in[kCount];
    Load(x, at, in);
    Load(dy, at, out[1]);
    for (int i = 0; i < kCount; ++i) out[0][i] = out[1][i] * ((in[i] - center) * inverse);
  }
};

}  // namespace

cudaError_t LayerNorm(cudaStream_t stream, int64_t rows, int64_t width, Array x, Array scale,
                      Array shift, float epsilon, Array y, float* mean, float* inverse_stddev) {
  if (rows == 0) return cudaSuccess;
  const auto kernel = width % kVector == 0 ? ForwardKernel<kVector> : ForwardKernel<1>;
  kernel<<<BlocksFor(rows, kRowsOfBlock), kRowsOfBlock * kWarp, 0, stream>>>(
      rows, width, x, scale, shift, epsilon, y, mean, inverse_stddev);
  return cudaGetLastError();
}

cudaError_t LayerNormInputGradient(cudaStream_t stream, LayerNormInputs inputs, Array residual,
                                   Array dx) {
  if (inputs.rows == 0) return cudaSuccess;
  const auto kernel =
      inputs.width % kVector == 0 ? InputGradientKernel<kVector> : InputGradientKernel<1>;
  kernel<<<BlocksFor(inputs.rows, kRowsOfBlock), kRowsOfBlock * kWarp, 0, stream>>>(inputs,
                                                                                    residual, dx);
  return cudaGetLastError();
}

cudaError_t LayerNormSums(cudaStream_t stream, LayerNormInputs inputs, double* scratch,
                          double* sums) {
  const auto sum = [&](auto x, auto dy) {
    return SumColumns(stream, inputs.rows, inputs.width, GradientTerms<decltype(x)>{inputs, x, dy},
                      scratch, sums);
  };
  if (inputs.x.dtype != inputs.dy.dtype) return sum(inputs.x, inputs.dy);
  return WithType(inputs.x,
                  [&](const auto* x) { return sum(x, static_cast<decltype(x)>(inputs.dy.data)); });
}

}  // namespace lockstep::cuda
