#include "core/kernels/cuda/batch_norm.h"
#include "core/kernels/cuda/column_sums.cuh"
#include "core/kernels/cuda/elements.cuh"

namespace lockstep::cuda {
namespace {

// Differences to the first row, which lies near the mean: the squares do not cancel.
template <typename T>
struct Deviations {
  static constexpr int kSums = 2;
  const T* x;
  int64_t width;
  template <int kCount>
  __device__ void operator()(int64_t row, int64_t column, float (&out)[2][kCount]) const {
    float origin[kCount];
    Load(x, row * width + column, out[0]);
    Load(x, column, origin);
    for (int i = 0; i < kCount; ++i) {
      out[0][i] -= origin[i];
      out[1][i] = out[0][i] * out[0][i];
    }
  }
};

__global__ void StatisticsKernel(int64_t rows, int64_t width, Array x, const double* sums,
                                 float* mean, float* variance) {
  const int64_t c = int64_t{blockIdx.x} * blockDim.x + threadIdx.x;
  if (c >= width) return;
  const double shifted = sums[c] / static_cast<double>(rows);
  const double spread = sums[width + c] / static_cast<double>(rows) - shifted * shifted;
  mean[c] = static_cast<float>(LoadOne(x, c) + shifted);
  variance[c] = static_cast<float>(spread < 0 ? 0 : spread);
}

// What a column's elements are multiplied by, and what is added then.
__global__ void FactorsKernel(int64_t width, Array scale, Array shift, const float* mean,
                              const float* variance, float epsilon, float* factors) {
  const int64_t c = int64_t{blockIdx.x} * blockDim.x + threadIdx.x;
  if (c >= width) return;
  const float factor = LoadOne(scale, c) / sqrtf(variance[c] + epsilon);
  factors[c] = factor;
  factors[width + c] = LoadOne(shift, c) - mean[c] * factor;
}

// y[i] = f(column, a[i], b[i]), kCount elements a thread; b may be null.
template <int kCount, typename Function>
__global__ void MapColumnsKernel(Function f, int64_t elements, int64_t width, Array a, Array b,
                                 Array y) {
  const int64_t at = (int64_t{blockIdx.x} * blockDim.x + threadIdx.x) * kCount;
  if (at >= elements) return;
  const int64_t column = at % width;
  float p[kCount], q[kCount] = {}, result[kCount];
  Load(a, at, p);
  if (b.data != nullptr) Load(b, at, q);
  for (int i = 0; i < kCount; ++i) result[i] = f(column + i, p[i], q[i]);
  Store(y, at, result);
}

template <typename Function>
cudaError_t MapColumns(cudaStream_t stream, Function f, int64_t rows, int64_t width, Array a,
                       Array b, Array y) {
  const int64_t elements = rows * width;
  if (elements == 0) return cudaSuccess;
  if (width % kVector == 0) {
    MapColumnsKernel<kVector><<<BlocksFor(elements, kThreads * kVector), kThreads, 0, stream>>>(
        f, elements, width, a, b, y);
  } else {
    MapColumnsKernel<1>
        <<<BlocksFor(elements, kThreads), kThreads, 0, stream>>>(f, elements, width, a, b, y);
  }
  return cudaGetLastError();
}

struct Affine {
  const float* factors;
  int64_t width;
  Activation activation;
  __device__ float operator()(int64_t column, float x, float residual) const {
    const float value = x * factors[column] + factors[width + column] + residual;
    return activation == Activation::kRelu && value < 0 ? 0 : value;  // NaN passes
  }
};

// Slopes: a pointer of one type for x and dy, or Array.
template <typename Slopes>
struct GradientTerms {
  static constexpr int kSums = 2;
  const float* mean;
  int64_t width;
  Slopes x, dy;
  template <int kCount>
  __device__ void operator()(int64_t row, int64_t column, float (&out)[2][kCount]) const {
    const int64_t at = row * width + column;
    float in[kCount], center[kCount];
    Load(x, at, in);
    Load(mean, column, center);
    Load(dy, at, out[1]);
    for (int i = 0; i < kCount; ++i) out[0][i] = out[1][i] * (in[i] - center[i]);
  }
};

__device__ double InverseStddev(const BatchNormInputs& n, int64_t column) {
  return 1.0 / sqrt(static_cast<double>(n.variance[column]) + n.epsilon);
}

__global__ void ScaleSumsKernel(BatchNormInputs n, double* sums) {
  const int64_t c = int64_t{blockIdx.x} * blockDim.x + threadIdx.x;
  if (c < n.width) sums[c] *= InverseStddev(n, c);
}

// dx = scale / sigma * (dy - mean(dy) - xhat * mean(dy * xhat)), as a * dy + (b * x + c).
__global__ void GradientFactorsKernel(BatchNormInputs n, const double* sums, float* factors) {
  const int64_t c = int64_t{blockIdx.x} * blockDim.x + threadIdx.x;
  if (c >= n.width) return;
  const double inverse = InverseStddev(n, c), factor = LoadOne(n.scale, c) * inverse;
  const double slope = factor * inverse * sums[c] / static_cast<double>(n.rows);
  factors[c] = static_cast<float>(factor);
  factors[n.width + c] = static_cast<float>(-slope);
  factors[2 * n.width + c] = static_cast<float>(
      -factor * sums[n.width + c] / static_cast<double>(n.rows) + slope * n.mean[c]);
}

struct InputGradient {
  const float* factors;
  int64_t width;
  __device__ float operator()(int64_t column, float dy, float x) const {
    return factors[column] * dy + (factors[width + column] * x + factors[2 * width + column]);
  }
};

__global__ void AddStatisticsKernel(int64_t channels, const float* mean, const float* variance,
                                    float weight, Write write, float* sums) {
  const int64_t c = int64_t{blockIdx.x} * blockDim.x + threadIdx.x;
  if (c >= channels) return;
  const bool adds = write == Write::kAccumulate;
  const float m = mean[c], terms[3] = {m, variance[c], m * m};
  for (int i = 0; i < 3; ++i) {
    float& sum = sums[i * channels + c];
    sum = (adds ? sum : 0.0f) + weight * terms[i];
  }
}

__global__ void UpdateRunningKernel(int64_t channels, const float* sums, double weight,
                                    double unbias, float momentum, float* running_mean,
                                    float* running_variance) {
  const int64_t c = int64_t{blockIdx.x} * blockDim.x + threadIdx.x;
  if (c >= channels) return;
  const double mean = sums[c] / weight, within = sums[channels + c] / weight;
  const double between = sums[2 * channels + c] / weight - mean * mean;
  const double variance = (within + (between > 0 ? between : 0)) * unbias;
  running_mean[c] = static_cast<float>(running_mean[c] + momentum * (mean - running_mean[c]));
  running_variance[c] =
      static_cast<float>(running_variance[c] + momentum * (variance - running_variance[c]));
}

}  // namespace

cudaError_t BatchStatistics(cudaStream_t stream, int64_t rows, int64_t width, Array x,
                            double* scratch, float* mean, float* variance) {
  double* const sums = scratch + 2 * kRowParts * width;
  const cudaError_t error = WithType(x, [&](const auto* data) {
    return SumColumns(stream, rows, width, Deviations{data, width}, scratch, sums);
  });
  if (error != cudaSuccess) return error;
  StatisticsKernel<<<BlocksFor(width, kThreads), kThreads, 0, stream>>>(rows, width, x, sums, mean,
                                                                        variance);
  return cudaGetLastError();
}

cudaError_t Normalize(cudaStream_t stream, int64_t rows, int64_t width, Array x, Array scale,
                      Array shift, Array residual, const float* mean, const float* variance,
                      float epsilon, Activation activation, float* factors, Array y) {
  FactorsKernel<<<BlocksFor(width, kThreads), kThreads, 0, stream>>>(width, scale, shift, mean,
                                                                     variance, epsilon, factors);
  return MapColumns(stream, Affine{factors, width, activation}, rows, width, x, residual, y);
}

cudaError_t BatchNormSums(cudaStream_t stream, BatchNormInputs inputs, Array dy, double* scratch,
                          double* sums) {
  const auto sum = [&](auto x, auto slopes) {
    return SumColumns(stream, inputs.rows, inputs.width,
                      GradientTerms<decltype(x)>{inputs.mean, inputs.width, x, slopes}, scratch,
                      sums);
  };
  const cudaError_t error =
      inputs.x.dtype != dy.dtype ? sum(inputs.x, dy) : WithType(inputs.x, [&](const auto* x) {
        return sum(x, static_cast<decltype(x)>(dy.data));
      });
  if (error != cudaSuccess) return error;
  ScaleSumsKernel<<<BlocksFor(inputs.width, kThreads), kThreads, 0, stream>>>(inputs, sums);
  return cudaGetLastError();
}

cudaError_t BatchNormInputGradient(cudaStream_t stream, BatchNormInputs inputs, Array dy,
                                   const double* sums, float* factors, Array dx) {
  GradientFactorsKernel<<<BlocksFor(inputs.width, kThreads), kThreads, 0, stream>>>(inputs, sums,
                                                                                    factors);
  return MapColumns(stream, InputGradient{factors, inputs.width}, inputs.rows, inputs.width, dy,
                    inputs.x, dx);
}

cudaError_t AddStatistics(cudaStream_t stream, int64_t channels, const float* mean,
                          const float* variance, float weight, Write write, float* sums) {
  AddStatisticsKernel<<<BlocksFor(channels, kThreads), kThreads, 0, stream>>>(
      channels, mean, variance, weight, write, sums);
  return cudaGetLastError();
}

cudaError_t UpdateRunningStatistics(cudaStream_t stream, int64_t channels, const float* sums,
                                    double weight, int64_t rows, float momentum,
                                    float* running_mean, float* running_variance) {
  const double samples = weight * static_cast<double>(rows);
  const double unbias = samples > 1 ? samples / (samples - 1) : 1;
  UpdateRunningKernel<<<BlocksFor(channels, kThreads), kThreads, 0, stream>>>(
      channels, sums, weight, unbias, momentum, running_mean, running_variance);
  return cudaGetLastError();
}

}  // namespace lockstep::cuda
