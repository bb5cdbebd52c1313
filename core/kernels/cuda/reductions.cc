// Reductions whose result goes to the host.

#include "core/kernels/cuda/reductions.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <vector>

#include "core/cuda/error.h"
#include "core/kernels/cuda/cuda_kernels.h"
#include "core/kernels/cuda/span.h"
#include "glog/logging.h"

namespace lockstep {

using cuda::Of;
using cuda::ReducedArray;

namespace {

std::vector<ReducedArray> ArraysOf(absl::Span<const Tensor> tensors) {
  std::vector<ReducedArray> arrays;
  for (const Tensor& x : tensors) arrays.push_back({.elements = x.elements(), .x = Of(x)});
  return arrays;
}

}  // namespace

// On the host: what is summed up are losses, a few kilobytes, and exact sums there have the bits of
// the CPU's.
ExactSum CudaKernels::SumOfAll(absl::Span<const Tensor> tensors) {
  Span span(this);
  ExactSum sum;
  std::vector<float> values;
  for (const Tensor& x : tensors) {
    CHECK(x.dtype() == DType::kF32) << Name(x.dtype());
    values.resize(x.elements());
    CopyToHost(x, values.data());
    for (const float value : values) sum.Add(value);
  }
  return sum;
}

float CudaKernels::MaxMagnitude(const Tensor& x) { return MaxMagnitudeOfAll({x}); }

SquareSum CudaKernels::SumOfSquares(const Tensor& x, float scale) {
  return SumOfSquaresOfAll({x}, scale);
}

float CudaKernels::MaxMagnitudeOfAll(absl::Span<const Tensor> tensors) {
  Span span(this);
  const std::vector<ReducedArray> arrays = ArraysOf(tensors);
  const Tensor partial = Workspace({cuda::PartialsOf(arrays)}, DType::kI32);
  const Tensor largest = Workspace({1}, DType::kI32);
  LS_CUDA(cuda::MaxMagnitude(stream(), arrays, reinterpret_cast<uint32_t*>(partial.raw()),
                             reinterpret_cast<uint32_t*>(largest.raw())));
  uint32_t bits = 0;
  CopyToHost(largest, &bits);
  constexpr uint32_t kInfinity = 0x7f800000;
  return std::bit_cast<float>(std::min(bits, kInfinity));
}

SquareSum CudaKernels::SumOfSquaresOfAll(absl::Span<const Tensor> tensors, float scale) {
  Span span(this);
  CHECK(scale > 0 && std::isfinite(scale)) << scale;
  // Bin i holds multiples of bound * 2^-(20 + 21 i), where bound is a power of two above every
  // square, as on the CPU: bins of both add up.
  const double bound = std::ldexp(1.0, 2 * (std::ilogb(scale) + 1));
  const cuda::SquareBins bins = {{bound * std::ldexp(1.5, 52 - 20),
                                  bound * std::ldexp(1.5, 52 - 41),
                                  bound * std::ldexp(1.5, 52 - 62)}};
  const std::vector<ReducedArray> arrays = ArraysOf(tensors);
  const Tensor partial = Workspace({3 * cuda::PartialsOf(arrays)}, DType::kF64);
  const Tensor sums = Workspace({3}, DType::kF64);
  LS_CUDA(cuda::SumOfSquares(stream(), arrays, bins, partial.data<double>(), sums.data<double>()));
  SquareSum sum;
  static_assert(sizeof(SquareSum) == 3 * sizeof(double));
  CopyToHost(sums, &sum);
  return sum;
}

}  // namespace lockstep
