#include "core/kernels/cuda/batch_statistics.h"
#include "core/kernels/cuda/elements.cuh"

namespace lockstep::cuda {
namespace {

__global__ void InverseStddevsKernel(int64_t channels, const float* variances, float epsilon,
                                     float* inverse_stddevs) {
  const int64_t c = int64_t{blockIdx.x} * blockDim.x + threadIdx.x;
  if (c >= channels) return;
  inverse_stddevs[c] = static_cast<float>(1 / sqrt(double{variances[c]} + double{epsilon}));
}

__global__ void VariancesKernel(int64_t channels, const float* inverse_stddevs, float epsilon,
                                float* variances) {
  const int64_t c = int64_t{blockIdx.x} * blockDim.x + threadIdx.x;
  if (c >= channels) return;
  const double inverse = inverse_stddevs[c];
  const double variance = 1 / (inverse * inverse) - double{epsilon};
  variances[c] = static_cast<float>(variance < 0 ? 0 : variance);  // NaN passes
}

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

__global__ void UpdateRunningKernel(int64_t channels, const float* sums, bool has_squares,
                                    double weight, double unbias, float momentum,
                                    float* running_mean, float* running_variance) {
  const int64_t c = int64_t{blockIdx.x} * blockDim.x + threadIdx.x;
  if (c >= channels) return;
  const double mean = sums[c] / weight, within = sums[channels + c] / weight;
  const double between = has_squares ? sums[2 * channels + c] / weight - mean * mean : 0;
  const double variance = (within + (between > 0 ? between : 0)) * unbias;
  running_mean[c] = static_cast<float>(running_mean[c] + momentum * (mean - running_mean[c]));
  running_variance[c] =
      static_cast<float>(running_variance[c] + momentum * (variance - running_variance[c]));
}

}  // namespace

cudaError_t InverseStddevs(cudaStream_t stream, int64_t channels, const float* variances,
                           float epsilon, float* inverse_stddevs) {
  InverseStddevsKernel<<<BlocksFor(channels, kThreads), kThreads, 0, stream>>>(
      channels, variances, epsilon, inverse_stddevs);
  return cudaGetLastError();
}

cudaError_t Variances(cudaStream_t stream, int64_t channels, const float* inverse_stddevs,
                      float epsilon, float* variances) {
  VariancesKernel<<<BlocksFor(channels, kThreads), kThreads, 0, stream>>>(channels, inverse_stddevs,
                                                                          epsilon, variances);
  return cudaGetLastError();
}

cudaError_t AddStatistics(cudaStream_t stream, int64_t channels, const float* mean,
                          const float* variance, float weight, Write write, float* sums) {
  AddStatisticsKernel<<<BlocksFor(channels, kThreads), kThreads, 0, stream>>>(
      channels, mean, variance, weight, write, sums);
  return cudaGetLastError();
}

cudaError_t UpdateRunningStatistics(cudaStream_t stream, int64_t channels, const float* sums,
                                    bool has_squares, double weight, int64_t rows, float momentum,
                                    float* running_mean, float* running_variance) {
  const double samples = weight * static_cast<double>(rows);
  const double unbias = samples > 1 ? samples / (samples - 1) : 1;
  UpdateRunningKernel<<<BlocksFor(channels, kThreads), kThreads, 0, stream>>>(
      channels, sums, has_squares, weight, unbias, momentum, running_mean, running_variance);
  return cudaGetLastError();
}

}  // namespace lockstep::cuda
