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

// A thread has kCount neighbouring points, which are twice as many elements, or kCount elements
// behind the heads; rows have of_row threads each.
template <int kCount>
__global__ void RotateKernel(Rotation rotation, int64_t rows, int64_t of_row, int64_t width,
                             Array x, const int32_t* positions, const float* table, Array y) {
  const int64_t half = rotation.head_width / 2, points = rotation.heads * half;
  const int64_t item = int64_t{blockIdx.x} * blockDim.x + threadIdx.x;
  if (item >= rows * of_row) return;
  const int64_t row = item / of_row, i = item % of_row * kCount;
  float a[kCount], b[kCount], cosine[kCount], sine[kCount];
  if (i >= points) {
    const int64_t at = row * width + points + i;
    Load(x, at, a);
    Store(y, at, a);
    return;
  }
  const int64_t at = row * width + i / half * rotation.head_width + i % half;
  const int64_t angles = positions[row] * rotation.head_width + i % half;
  Load(x, at, a);
  Load(x, at + half, b);
  Load(table, angles, cosine);
  Load(table, angles + half, sine);
  float first[kCount], second[kCount];
  for (int j = 0; j < kCount; ++j) {
    if (rotation.direction == Rotation::Direction::kBackward) sine[j] = -sine[j];
    first[j] = a[j] * cosine[j] - b[j] * sine[j];
    second[j] = b[j] * cosine[j] + a[j] * sine[j];
  }
  Store(y, at, first);
  Store(y, at + half, second);
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
  const int64_t half = rotation.head_width / 2, points = rotation.heads * half;
  // In place there is nothing to copy.
  const int64_t behind = x.data == y.data ? 0 : width - 2 * points;
  const int count = half % kVector == 0 && width % kVector == 0 ? kVector : 1;
  const int64_t of_row = (points + behind) / count;
  if (rows * of_row == 0) return cudaSuccess;
  const auto kernel = count == 1 ? RotateKernel<1> : RotateKernel<kVector>;
  kernel<<<BlocksFor(rows * of_row, kThreads), kThreads, 0, stream>>>(rotation, rows, of_row, width,
                                                                      x, positions, table, y);
  return cudaGetLastError();
}

}  // namespace lockstep::cuda
