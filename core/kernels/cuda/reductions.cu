#include "core/kernels/cuda/reductions.h"

#include "core/kernels/cuda/elements.cuh"
#include "core/kernels/cuda/reduce.cuh"

namespace lockstep::cuda {
namespace {

// partial[block] = the elements of the block's part, a run of consecutive ones, combined.
template <typename T, typename Value, typename Op>
__global__ void PartialKernel(int64_t elements, int64_t part, Value value, Op op, T start,
                              T* partial) {
  const int64_t first = int64_t{blockIdx.x} * part;
  const int64_t last = first + part < elements ? first + part : elements;
  T sum = start;
  for (int64_t i = first + threadIdx.x; i < last; i += blockDim.x) sum = op(sum, value(i));
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
cudaError_t Reduce(cudaStream_t stream, int64_t elements, Value value, Op op, T start, T* partial,
                   T* result) {
  constexpr int64_t kSmallestPart = 8 * kThreads;
  int64_t part = BlocksFor(elements, kPartials);
  part = part < kSmallestPart ? kSmallestPart : part;
  const int64_t parts = BlocksFor(elements, part);
  if (parts > 0) {
    PartialKernel<<<parts, kThreads, 0, stream>>>(elements, part, value, op, start, partial);
  }
  FinishKernel<<<1, kThreads, 0, stream>>>(parts, partial, op, start, result);
  return cudaGetLastError();
}

struct AsDouble {
  const float* x;
  __device__ double operator()(int64_t i) const { return x[i]; }
};

struct MagnitudeBits {
  Array x;
  __device__ uint32_t operator()(int64_t i) const {
    return __float_as_uint(LoadOne(x, i)) & 0x7fffffffu;
  }
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
  Array x;
  SquareBins bins;
  __device__ Binned operator()(int64_t i) const {
    const double value = LoadOne(x, i);
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
  return Reduce(stream, elements, AsDouble{x}, Plus{}, 0.0, partial, sum);
}

cudaError_t MaxMagnitude(cudaStream_t stream, int64_t elements, Array x, uint32_t* partial,
                         uint32_t* largest) {
  return Reduce(stream, elements, MagnitudeBits{x}, Larger{}, 0u, partial, largest);
}

cudaError_t SumOfSquares(cudaStream_t stream, int64_t elements, Array x, SquareBins bins,
                         double* partial, double* sums) {
  static_assert(sizeof(Binned) == 3 * sizeof(double));
  return Reduce(stream, elements, BinnedSquare{x, bins}, PlusBins{}, Binned{},
                reinterpret_cast<Binned*>(partial), reinterpret_cast<Binned*>(sums));
}

}  // namespace lockstep::cuda
