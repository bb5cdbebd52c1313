#include "core/kernels/cuda/elements.cuh"
#include "core/kernels/cuda/llama_elements.h"

namespace lockstep::cuda {
namespace {

// 1 / (1 + e^-x), and what it lacks to 1: neither is a difference of two numbers that are close.
struct Sigmoid {
  float value, rest;

  __device__ explicit Sigmoid(float x) {
    const float power = expf(-fabsf(x)), more = 1.0f / (1.0f + power), less = power * more;
    value = x >= 0 ? more : less;
    rest = x >= 0 ? less : more;
  }
};

// kCount elements of y a thread.
template <int kCount>
__global__ void SwiGluKernel(int64_t elements, int64_t hidden, Array x, Array y) {
  const int64_t at = (int64_t{blockIdx.x} * blockDim.x + threadIdx.x) * kCount;
  if (at >= elements) return;
  const int64_t from = at + at / hidden * hidden;
  float gate[kCount], up[kCount], out[kCount];
  Load(x, from, gate);
  Load(x, from + hidden, up);
  for (int i = 0; i < kCount; ++i) out[i] = gate[i] * Sigmoid(gate[i]).value * up[i];
  Store(y, at, out);
}

template <int kCount>
__global__ void SwiGluBackwardKernel(int64_t elements, int64_t hidden, Array x, Array dy,
                                     Array dx) {
  const int64_t at = (int64_t{blockIdx.x} * blockDim.x + threadIdx.x) * kCount;
  if (at >= elements) return;
  const int64_t from = at + at / hidden * hidden;
  float gate[kCount], up[kCount], slope[kCount], dgate[kCount], dup[kCount];
  Load(x, from, gate);
  Load(x, from + hidden, up);
  Load(dy, at, slope);
  for (int i = 0; i < kCount; ++i) {
    const Sigmoid s(gate[i]);
    dgate[i] = slope[i] * up[i] * fmaf(gate[i] * s.value, s.rest, s.value);
    dup[i] = slope[i] * (gate[i] * s.value);
  }
  Store(dx, from, dgate);
  Store(dx, from + hidden, dup);
}

// A thread has the two elements of a point, or one element behind the heads.
__global__ void RotateKernel(Rotation rotation, int64_t rows, int64_t width, Array x,
                             const int32_t* positions, const float* table, Array y) {
  const int64_t half = rotation.head_width / 2, points = rotation.heads * half;
  const int64_t of_row = width - points;  // items: points, and what lies behind the heads
  const int64_t item = int64_t{blockIdx.x} * blockDim.x + threadIdx.x;
  if (item >= rows * of_row) return;
  const int64_t row = item / of_row, i = item % of_row;
  if (i >= points) {
    const int64_t at = row * width + points + i;
    StoreOne(y, at, LoadOne(x, at));
    return;
  }
  const int64_t at = row * width + i / half * rotation.head_width + i % half;
  const float* const angles = table + positions[row] * rotation.head_width + i % half;
  const float cosine = angles[0];
  const float sine =
      rotation.direction == Rotation::Direction::kForward ? angles[half] : -angles[half];
  const float a = LoadOne(x, at), b = LoadOne(x, at + half);
  StoreOne(y, at, a * cosine - b * sine);
  StoreOne(y, at + half, b * cosine + a * sine);
}

}  // namespace

cudaError_t SwiGlu(cudaStream_t stream, int64_t rows, int64_t hidden, Array x, Array y) {
  const int64_t elements = rows * hidden;
  if (elements == 0) return cudaSuccess;
  const int count = hidden % kVector == 0 ? kVector : 1;
  const auto kernel = count == 1 ? SwiGluKernel<1> : SwiGluKernel<kVector>;
  kernel<<<BlocksFor(elements, kThreads * count), kThreads, 0, stream>>>(elements, hidden, x, y);
  return cudaGetLastError();
}

cudaError_t SwiGluBackward(cudaStream_t stream, int64_t rows, int64_t hidden, Array x, Array dy,
                           Array dx) {
  const int64_t elements = rows * hidden;
  if (elements == 0) return cudaSuccess;
  const int count = hidden % kVector == 0 ? kVector : 1;
  const auto kernel = count == 1 ? SwiGluBackwardKernel<1> : SwiGluBackwardKernel<kVector>;
  kernel<<<BlocksFor(elements, kThreads * count), kThreads, 0, stream>>>(elements, hidden, x, dy,
                                                                         dx);
  return cudaGetLastError();
}

cudaError_t Rotate(cudaStream_t stream, Rotation rotation, int64_t rows, int64_t width, Array x,
                   const int32_t* positions, const float* table, Array y) {
  const int64_t items = rows * (width - rotation.heads * (rotation.head_width / 2));
  if (items == 0) return cudaSuccess;
  RotateKernel<<<BlocksFor(items, kThreads), kThreads, 0, stream>>>(rotation, rows, width, x,
                                                                    positions, table, y);
  return cudaGetLastError();
}

}  // namespace lockstep::cuda
