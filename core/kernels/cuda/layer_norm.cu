#include <type_traits>

#include "core/kernels/cuda/column_sums.cuh"
#include "core/kernels/cuda/elements.cuh"
#include "core/kernels/cuda/layer_norm.h"
#include "core/kernels/cuda/reduce.cuh"
#include "core/kernels/cuda/warp_rows.cuh"

namespace lockstep::cuda {
namespace {

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

// Rows that a warp holds in registers: their elements are read once, all of them under way
// together. A lane has kVector columns of each of kSegments segments.
constexpr int kSegment = kWarp * kVector;
constexpr int kMostSegments = 4;

// Calls f(segment, column) for the calling lane's columns.
template <int kSegments, typename Function>
__device__ __forceinline__ void ForSegments(int64_t width, Function&& f) {
#pragma unroll
  for (int s = 0; s < kSegments; ++s) {
    const int64_t c = s * kSegment + static_cast<int>(threadIdx.x) % kWarp * kVector;
    if (c < width) f(s, c);
  }
}

// Loads them; behind the row's end its last ones again, so that no load waits for a decision.
template <int kSegments, typename T>
__device__ __forceinline__ void LoadSegments(const T* row, int64_t width,
                                             float (&out)[kSegments][kVector]) {
#pragma unroll
  for (int s = 0; s < kSegments; ++s) {
    const int64_t c = s * kSegment + static_cast<int>(threadIdx.x) % kWarp * kVector;
    Load(row, c < width ? c : width - kVector, out[s]);
  }
}

template <int kSegments, typename T>
__global__ void ShortForwardKernel(int64_t rows, int64_t width, const T* x, Array scale,
                                   Array shift, float epsilon, Array y, float* mean,
                                   float* inverse_stddev) {
  const int64_t row = WarpRow();
  if (row >= rows) return;
  float in[kSegments][kVector];
  LoadSegments(x + row * width, width, in);
  float sum = 0;
  ForSegments<kSegments>(width, [&](int s, int64_t) {
    for (int i = 0; i < kVector; ++i) sum += in[s][i];
  });
  const float center = WarpReduce(sum, Plus{}) / static_cast<float>(width);
  float squares = 0;
  ForSegments<kSegments>(width, [&](int s, int64_t) {
    for (int i = 0; i < kVector; ++i) squares += (in[s][i] - center) * (in[s][i] - center);
  });
  const float variance = WarpReduce(squares, Plus{}) / static_cast<float>(width);
  const float inverse = 1.0f / sqrtf(variance + epsilon);
  ForSegments<kSegments>(width, [&](int s, int64_t c) {
    float gamma[kVector], beta[kVector], out[kVector];
    Load(scale, c, gamma);
    Load(shift, c, beta);
    for (int i = 0; i < kVector; ++i) out[i] = (in[s][i] - center) * inverse * gamma[i] + beta[i];
    Store(y, row * width + c, out);
  });
  if (threadIdx.x % kWarp == 0) {
    mean[row] = center;
    inverse_stddev[row] = inverse;
  }
}

// x and dy have one dtype.
template <int kSegments, typename T>
__global__ void ShortInputGradientKernel(LayerNormInputs n, const T* x, const T* dy, Array residual,
                                         Array dx) {
  const int64_t row = WarpRow(), width = n.width;
  if (row >= n.rows) return;
  const float center = n.mean[row], inverse = n.inverse_stddev[row];
  float normalized[kSegments][kVector], g[kSegments][kVector];
  LoadSegments(x + row * width, width, normalized);
  LoadSegments(dy + row * width, width, g);
  float sum = 0, products = 0;
  ForSegments<kSegments>(width, [&](int s, int64_t c) {
    float gamma[kVector];
    Load(n.scale, c, gamma);
    for (int i = 0; i < kVector; ++i) {
      g[s][i] *= gamma[i];
      normalized[s][i] = (normalized[s][i] - center) * inverse;
      sum += g[s][i];
      products += g[s][i] * normalized[s][i];
    }
  });
  const float mean_g = WarpReduce(sum, Plus{}) / static_cast<float>(width);
  const float mean_product = WarpReduce(products, Plus{}) / static_cast<float>(width);
  ForSegments<kSegments>(width, [&](int s, int64_t c) {
    float add[kVector] = {}, out[kVector];
    if (residual.data != nullptr) Load(residual, row * width + c, add);
    for (int i = 0; i < kVector; ++i) {
      out[i] = add[i] + inverse * (g[s][i] - mean_g - normalized[s][i] * mean_product);
    }
    Store(dx, row * width + c, out);
  });
}

// Whether such a kernel has rows of this width.
bool IsShort(int64_t width) { return width % kVector == 0 && width <= kMostSegments * kSegment; }

// f(std::integral_constant of the segments that short rows of this width have)
template <typename Function>
cudaError_t WithSegments(int64_t width, Function&& f) {
  switch (BlocksFor(width, kSegment)) {
    case 1:
      return f(std::integral_constant<int, 1>());
    case 2:
      return f(std::integral_constant<int, 2>());
    case 3:
      return f(std::integral_constant<int, 3>());
    default:
      return f(std::integral_constant<int, kMostSegments>());
  }
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
  if (IsShort(width)) {
    return WithType(x, [&](const auto* data) {
      return WithSegments(width, [&](auto segments) {
        const auto kernel = ShortForwardKernel<segments.value, ElementOf<decltype(data)>>;
        kernel<<<BlocksFor(rows, kRowsOfBlock), kRowsOfBlock * kWarp, 0, stream>>>(
            rows, width, data, scale, shift, epsilon, y, mean, inverse_stddev);
        return cudaGetLastError();
      });
    });
  }
  const auto kernel = width % kVector == 0 ? ForwardKernel<kVector> : ForwardKernel<1>;
  kernel<<<BlocksFor(rows, kRowsOfBlock), kRowsOfBlock * kWarp, 0, stream>>>(
      rows, width, x, scale, shift, epsilon, y, mean, inverse_stddev);
  return cudaGetLastError();
}

cudaError_t LayerNormInputGradient(cudaStream_t stream, LayerNormInputs inputs, Array residual,
                                   Array dx) {
  if (inputs.rows == 0) return cudaSuccess;
  if (IsShort(inputs.width) && inputs.x.dtype == inputs.dy.dtype) {
    return WithType(inputs.x, [&](const auto* x) {
      return WithSegments(inputs.width, [&](auto segments) {
        const auto kernel = ShortInputGradientKernel<segments.value, ElementOf<decltype(x)>>;
        kernel<<<BlocksFor(inputs.rows, kRowsOfBlock), kRowsOfBlock * kWarp, 0, stream>>>(
            inputs, x, static_cast<decltype(x)>(inputs.dy.data), residual, dx);
        return cudaGetLastError();
      });
    });
  }
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
