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

using cuda::kPartials;
using cuda::Of;

double CudaKernels::Sum(const Tensor& x) { return SumOfEach({x}).front(); }

std::vector<double> CudaKernels::SumOfEach(absl::Span<const Tensor> tensors) {
  Span span(this);
  const Tensor partial = Workspace({kPartials}, DType::kF64);
  const Tensor sums = Workspace({static_cast<int64_t>(tensors.size())}, DType::kF64);
  for (size_t i = 0; i < tensors.size(); ++i) {
    const Tensor& x = tensors[i];
    LS_CUDA(cuda::Sum(stream(), x.elements(), x.data<float>(), partial.data<double>(),
                      sums.data<double>() + i));
  }
  std::vector<double> results(tensors.size());
  CopyToHost(sums, results.data());
  return results;
}

float CudaKernels::MaxMagnitude(const Tensor& x) { return MaxMagnitudeOfAll({x}); }

SquareSum CudaKernels::SumOfSquares(const Tensor& x, float scale) {
  return SumOfSquaresOfAll({x}, scale);
}

float CudaKernels::MaxMagnitudeOfAll(absl::Span<const Tensor> tensors) {
  Span span(this);
  const auto count = static_cast<int64_t>(tensors.size());
  const Tensor partial = Workspace({kPartials}, DType::kI32);
  const Tensor largest = Workspace({count}, DType::kI32);
  for (int64_t i = 0; i < count; ++i) {
    const Tensor& x = tensors[static_cast<size_t>(i)];
    LS_CUDA(cuda::MaxMagnitude(stream(), x.elements(), Of(x),
                               reinterpret_cast<uint32_t*>(partial.raw()),
                               reinterpret_cast<uint32_t*>(largest.raw()) + i));
  }
  std::vector<uint32_t> bits(tensors.size());
  CopyToHost(largest, bits.data());
  constexpr uint32_t kInfinity = 0x7f800000;
  uint32_t most = 0;
  for (const uint32_t each : bits) most = std::max(most, each);
  return std::bit_cast<float>(std::min(most, kInfinity));
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
  const auto count = static_cast<int64_t>(tensors.size());
  const Tensor partial = Workspace({3 * kPartials}, DType::kF64);
  const Tensor sums = Workspace({3 * count}, DType::kF64);
  for (int64_t i = 0; i < count; ++i) {
    const Tensor& x = tensors[static_cast<size_t>(i)];
    LS_CUDA(cuda::SumOfSquares(stream(), x.elements(), Of(x), bins, partial.data<double>(),
                               sums.data<double>() + 3 * i));
  }
  std::vector<SquareSum> parts(tensors.size());
  static_assert(sizeof(SquareSum) == 3 * sizeof(double));
  CopyToHost(sums, parts.data());
  SquareSum sum;
  for (const SquareSum& part : parts) sum.Add(part);
  return sum;
}

}  // namespace lockstep
