#include "core/kernels/cuda/optimizer.h"

#include "core/kernels/cuda/elements.cuh"

namespace lockstep::cuda {
namespace {

// Updates kCount elements from `at` on: update(slope, parameter, one state, another).
template <int kCount, typename Update>
__device__ void UpdateAt(const Update& update, int64_t at, const Array& gradient,
                         const Array& parameter, const Array& first, const Array& second,
                         const Array& copy) {
  float g[kCount], p[kCount], m[kCount] = {}, v[kCount] = {};
  Load(gradient, at, g);
  Load(parameter, at, p);
  if (first.data != nullptr) Load(first, at, m);
  if (second.data != nullptr) Load(second, at, v);
  for (int i = 0; i < kCount; ++i) update(g[i], p[i], m[i], v[i]);
  Store(parameter, at, p);
  if (first.data != nullptr) Store(first, at, m);
  if (second.data != nullptr) Store(second, at, v);
  if (copy.data != nullptr) Store(copy, at, p);
}

template <typename Update>
__global__ void UpdateKernel(int64_t elements, Update update, Array gradient, Array parameter,
                             Array first, Array second, Array copy) {
  const int64_t at = (int64_t{blockIdx.x} * blockDim.x + threadIdx.x) * kVector;
  if (at + kVector <= elements) {
    UpdateAt<kVector>(update, at, gradient, parameter, first, second, copy);
  } else {
    for (int64_t i = at; i < elements; ++i) {
      UpdateAt<1>(update, i, gradient, parameter, first, second, copy);
    }
  }
}

template <typename Update>
cudaError_t Run(cudaStream_t stream, int64_t elements, Update update, Array gradient,
                float* parameter, float* first, float* second, Array copy) {
  if (elements == 0) return cudaSuccess;
  UpdateKernel<<<BlocksFor(elements, kThreads * kVector), kThreads, 0, stream>>>(
      elements, update, gradient, Array{parameter}, Array{first}, Array{second}, copy);
  return cudaGetLastError();
}

struct AdamWUpdate {
  AdamWFactors f;
  __device__ void operator()(float g, float& p, float& m, float& v) const {
    const float slope = g * f.gradient;
    m = f.beta1 * m + (1 - f.beta1) * slope;
    v = f.beta2 * v + (1 - f.beta2) * slope * slope;
    p = p * f.keep - f.rate * m / (sqrtf(v) * f.root + f.epsilon);
  }
};

struct SgdUpdate {
  SgdFactors f;
  __device__ void operator()(float g, float& p, float&, float&) const {
    p -= f.rate * (g * f.gradient + f.decay * p);
  }
};

struct MomentumUpdate {
  SgdFactors f;
  __device__ void operator()(float g, float& p, float& b, float&) const {
    const float slope = g * f.gradient + f.decay * p;
    b = f.momentum * b + slope;
    p -= f.rate * (f.slope * slope + f.buffer * b);
  }
};

}  // namespace

cudaError_t AdamWStep(cudaStream_t stream, int64_t elements, AdamWFactors factors, Array gradient,
                      float* parameter, float* first_moment, float* second_moment, Array copy) {
  return Run(stream, elements, AdamWUpdate{factors}, gradient, parameter, first_moment,
             second_moment, copy);
}

cudaError_t SgdStep(cudaStream_t stream, int64_t elements, SgdFactors factors, Array gradient,
                    float* parameter, float* momentum, Array copy) {
  return momentum == nullptr ? Run(stream, elements, SgdUpdate{factors}, gradient, parameter,
                                   nullptr, nullptr, copy)
                             : Run(stream, elements, MomentumUpdate{factors}, gradient, parameter,
                                   momentum, nullptr, copy);
}

}  // namespace lockstep::cuda
