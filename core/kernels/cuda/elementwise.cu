#include "core/kernels/cuda/elements.cuh"
#include "core/kernels/cuda/elementwise.h"
#include "core/kernels/cuda/philox.cuh"

namespace lockstep::cuda {
namespace {

// y[i] = f(i, a[i], b[i]) for kCount elements from `at` on; those of an array that is null are 0.
template <int kCount, typename Function>
__device__ void MapAt(const Function& f, int64_t at, const Array& a, const Array& b,
                      const Array& y) {
  float p[kCount] = {}, q[kCount] = {}, result[kCount];
  if (a.data != nullptr) Load(a, at, p);
  if (b.data != nullptr) Load(b, at, q);
  for (int i = 0; i < kCount; ++i) result[i] = f(at + i, p[i], q[i]);
  Store(y, at, result);
}

template <typename Function>
__global__ void MapKernel(Function f, int64_t elements, Array a, Array b, Array y) {
  const int64_t at = (int64_t{blockIdx.x} * blockDim.x + threadIdx.x) * kVector;
  if (at + kVector <= elements) {
    MapAt<kVector>(f, at, a, b, y);
  } else {
    for (int64_t i = at; i < elements; ++i) MapAt<1>(f, i, a, b, y);
  }
}

template <typename Function>
cudaError_t Map(cudaStream_t stream, int64_t elements, Function f, Array a, Array b, Array y) {
  if (elements == 0) return cudaSuccess;
  MapKernel<<<BlocksFor(elements, kThreads * kVector), kThreads, 0, stream>>>(f, elements, a, b, y);
  return cudaGetLastError();
}

struct Constant {
  float value;
  __device__ float operator()(int64_t, float, float) const { return value; }
};
struct First {
  __device__ float operator()(int64_t, float a, float) const { return a; }
};
struct Sum {
  __device__ float operator()(int64_t, float a, float b) const { return a + b; }
};
struct PositiveSum {
  __device__ float operator()(int64_t, float a, float b) const { return a + b < 0 ? 0 : a + b; }
};
struct Product {
  __device__ float operator()(int64_t, float a, float b) const { return a * b; }
};
struct Scaled {
  float factor;
  __device__ float operator()(int64_t, float a, float) const { return a * factor; }
};
struct PlusScaled {
  float factor;
  __device__ float operator()(int64_t, float sum, float x) const { return sum + x * factor; }
};
struct Positive {
  __device__ float operator()(int64_t, float x, float) const { return x < 0 ? 0 : x; }
};
struct WherePositive {
  __device__ float operator()(int64_t, float y, float dy) const { return y > 0 ? dy : 0; }
};

// GELU by the tanh approximation: x/2 (1 + tanh u) = x / (1 + e^-2u),
// u = sqrt(2/pi) (x + 0.044715 x^3).
constexpr float kGeluTwoRoot = 1.5957691216f;  // 2 sqrt(2/pi)
constexpr float kGeluCubic = 0.044715f;

__device__ float GeluSigmoid(float x) {
  return 1.0f / (1.0f + expf(-kGeluTwoRoot * fmaf(kGeluCubic * x * x, x, x)));
}

struct GeluValue {
  __device__ float operator()(int64_t, float x, float) const { return x * GeluSigmoid(x); }
};
struct TimesGeluSlope {
  __device__ float operator()(int64_t, float x, float dy) const {
    const float s = GeluSigmoid(x);
    const float inner = kGeluTwoRoot * fmaf(3 * kGeluCubic * x, x, 1.0f);
    return dy * fmaf(x * s * (1.0f - s), inner, s);
  }
};

// Philox makes the numbers of four elements at once: a thread's eight need two blocks where the
// tensor begins at a multiple of four, as all but oddly cut ones do.
__global__ void DropoutKernel(int64_t elements, Dropout dropout, int64_t first_element, Array x,
                              Array y) {
  const int64_t at = (int64_t{blockIdx.x} * blockDim.x + threadIdx.x) * kVector;
  if (first_element % 4 != 0 || at + kVector > elements) {
    for (int64_t i = at; i < at + kVector && i < elements; ++i) {
      const float factor = DropoutFactor(dropout, static_cast<uint64_t>(first_element + i));
      StoreOne(y, i, factor == 0 ? 0 : LoadOne(x, i) * factor);
    }
    return;
  }
  float values[kVector];
  Load(x, at, values);
  for (int i = 0; i < kVector; i += 4) {
    const uint4 c = PhiloxBlock(dropout.key, static_cast<uint64_t>(first_element + at + i) / 4,
                                dropout.counter);
    const uint32_t bits[4] = {c.x, c.y, c.z, c.w};
    for (int k = 0; k < 4; ++k) {
      const float factor = DropoutFactorOf(dropout, bits[k]);
      values[i + k] = factor == 0 ? 0 : values[i + k] * factor;
    }
  }
  Store(y, at, values);
}

template <typename From, typename To>
__global__ void ConvertKernel(int64_t elements, const From* x, To* y) {
  const int64_t i = int64_t{blockIdx.x} * blockDim.x + threadIdx.x;
  if (i < elements) y[i] = static_cast<To>(x[i]);
}

template <typename From, typename To>
cudaError_t Convert(cudaStream_t stream, int64_t elements, const From* x, To* y) {
  if (elements == 0) return cudaSuccess;
  ConvertKernel<<<BlocksFor(elements, kThreads), kThreads, 0, stream>>>(elements, x, y);
  return cudaGetLastError();
}

}  // namespace

cudaError_t Fill(cudaStream_t stream, int64_t elements, float value, Array y) {
  return Map(stream, elements, Constant{value}, {}, {}, y);
}

cudaError_t Cast(cudaStream_t stream, int64_t elements, Array x, Array y) {
  return Map(stream, elements, First{}, x, {}, y);
}

cudaError_t WidenToDouble(cudaStream_t stream, int64_t elements, const float* x, double* y) {
  return Convert(stream, elements, x, y);
}

cudaError_t NarrowToFloat(cudaStream_t stream, int64_t elements, const double* x, float* y) {
  return Convert(stream, elements, x, y);
}

cudaError_t Add(cudaStream_t stream, int64_t elements, Array a, Array b, Array y) {
  return Map(stream, elements, Sum{}, a, b, y);
}

cudaError_t AddRelu(cudaStream_t stream, int64_t elements, Array a, Array b, Array y) {
  return Map(stream, elements, PositiveSum{}, a, b, y);
}

cudaError_t Multiply(cudaStream_t stream, int64_t elements, Array a, Array b, Array y) {
  return Map(stream, elements, Product{}, a, b, y);
}

cudaError_t Scale(cudaStream_t stream, int64_t elements, Array x, float factor, Array y) {
  return Map(stream, elements, Scaled{factor}, x, {}, y);
}

cudaError_t AddScaled(cudaStream_t stream, int64_t elements, Array x, float factor, Array y) {
  return Map(stream, elements, PlusScaled{factor}, y, x, y);
}

cudaError_t Relu(cudaStream_t stream, int64_t elements, Array x, Array y) {
  return Map(stream, elements, Positive{}, x, {}, y);
}

cudaError_t ReluBackward(cudaStream_t stream, int64_t elements, Array y, Array dy, Array dx) {
  return Map(stream, elements, WherePositive{}, y, dy, dx);
}

cudaError_t Gelu(cudaStream_t stream, int64_t elements, Array x, Array y) {
  return Map(stream, elements, GeluValue{}, x, {}, y);
}

cudaError_t GeluBackward(cudaStream_t stream, int64_t elements, Array x, Array dy, Array dx) {
  return Map(stream, elements, TimesGeluSlope{}, x, dy, dx);
}

cudaError_t ApplyDropout(cudaStream_t stream, int64_t elements, Dropout dropout,
                         int64_t first_element, Array x, Array y) {
  if (elements == 0) return cudaSuccess;
  DropoutKernel<<<BlocksFor(elements, kThreads * kVector), kThreads, 0, stream>>>(
      elements, dropout, first_element, x, y);
  return cudaGetLastError();
}

}  // namespace lockstep::cuda
