#include "core/kernels/cuda/elements.cuh"
#include "core/kernels/cuda/reduce.cuh"
#include "core/kernels/cuda/reductions.h"

namespace lockstep::cuda {
namespace {

// partial[block] = value(element) of the block's part, a run of consecutive elements that begins at
// a multiple of kVector, combined. Two vectors are loaded at a time.
template <typename T, typename Element, typename Value, typename Op>
__global__ void PartialKernel(int64_t elements, int64_t part, const Element* x, Value value, Op op,
                              T start, T* partial) {
  const int64_t first = int64_t{blockIdx.x} * part;
  const int64_t last = first + part < elements ? first + part : elements;
  const int64_t whole = last - (last - first) % kVector, step = int64_t{blockDim.x} * kVector;
  T sum = start;
  const auto add = [&](const float(&values)[kVector]) {
    for (const float one : values) sum = op(sum, value(one));
  };
  int64_t i = first + int64_t{threadIdx.x} * kVector;
  for (; i + step < whole; i += 2 * step) {
    float values[kVector], next[kVector];
    Load(x, i, values);
    Load(x, i + step, next);
    add(values);
    add(next);
  }
  if (i < whole) {
    float values[kVector];
    Load(x, i, values);
    add(values);
  }
  for (i = whole + threadIdx.x; i < last; i += blockDim.x) sum = op(sum, value(ToFloat(x[i])));
  sum = BlockReduce(sum, op);
  if (threadIdx.x == 0) partial[blockIdx.x] = sum;
}

template <typename T, typename Op>
__global__ void FinishKernel(int64_t count, const T* partial, Op op, T start, T* result) {
  T sum = start;
  for (int64_t i = threadIdx.x; i < count; i += blockDim.x) sum = op(sum, partial[i]);
  sum = BlockReduce(sum, op);
  if (threadIdx.x == 0) *result = sum;
}

template <typename T, typename Value, typename Op>
cudaError_t Reduce(cudaStream_t stream, int64_t elements, Array x, Value value, Op op, T start,
                   T* partial, T* result) {
  constexpr int64_t kSmallestPart = kVector * kThreads;
  const int64_t part = BlocksFor(BlocksFor(elements, kPartials), kSmallestPart) * kSmallestPart;
  const int64_t parts = elements == 0 ? 0 : BlocksFor(elements, part);
  if (parts > 0) {
    WithType(x, [&](const auto* data) {
      PartialKernel<<<parts, kThreads, 0, stream>>>(elements, part, data, value, op, start,
                                                    partial);
      return cudaSuccess;
    });
  }
  FinishKernel<<<1, kThreads, 0, stream>>>(parts, partial, op, start, result);
  return cudaGetLastError();
}

struct AsDouble {
  __device__ double operator()(float x) const { return x; }
};

struct MagnitudeBits {
  __device__ uint32_t operator()(float x) const { return __float_as_uint(x) & 0x7fffffffu; }
};

struct Binned {
  double sums[3];
};

struct PlusBins {
  __device__ Binned operator()(const Binned& a, const Binned& b) const {
    return {{a.sums[0] + b.sums[0], a.sums[1] + b.sums[1], a.sums[2] + b.sums[2]}};
  }
};

struct BinnedSquare {
  SquareBins bins;
  __device__ Binned operator()(float x) const {
    const double value = x;
    double rest = value * value;  // exact: 48 bits
    Binned result;
    for (int bin = 0; bin < 3; ++bin) {
      result.sums[bin] = (rest + bins.middle[bin]) - bins.middle[bin];
      rest -= result.sums[bin];
    }
    return result;
  }
};

// As WarpReduce of reduce.cuh, bin by bin.
__device__ Binned WarpReduce(Binned value, PlusBins) {
  for (double& sum : value.sums) sum = WarpReduce(sum, Plus{});
  return value;
}

}  // namespace

cudaError_t Sum(cudaStream_t stream, int64_t elements, const float* x, double* partial,
                double* sum) {
  return Reduce(stream, elements, Array{const_cast<float*>(x)}, AsDouble{}, Plus{}, 0.0, partial,
                sum);
}

cudaError_t MaxMagnitude(cudaStream_t stream, int64_t elements, Array x, uint32_t* partial,
                         uint32_t* largest) {
  return Reduce(stream, elements, x, MagnitudeBits{}, Larger{}, 0u, partial, largest);
}

cudaError_t SumOfSquares(cudaStream_t stream, int64_t elements, Array x, SquareBins bins,
                         double* partial, double* sums) {
  static_assert(sizeof(Binned) == 3 * sizeof(double));
  return Reduce(stream, elements, x, BinnedSquare{bins}, PlusBins{}, Binned{},
                reinterpret_cast<Binned*>(partial), reinterpret_cast<Binned*>(sums));
}

}  // namespace lockstep::cuda
