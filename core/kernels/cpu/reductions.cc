// Reductions whose result goes to the host.

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

#include "core/base/parallel.h"
#include "core/kernels/cpu/cpu_kernels.h"
#include "core/kernels/cpu/span.h"
#include "glog/logging.h"

namespace lockstep {

constexpr int64_t kGrain = 1 << 14;  // elements below which a fork does not pay

double CpuKernels::Sum(const Tensor& x) {
  Span span(this);
  double sum = 0;
  for (float value : x.span<float>()) sum += value;
  return sum;
}

float CpuKernels::MaxMagnitude(const Tensor& x) {
  Span span(this);
  // Without their sign, floats order as their bits do, NaN above infinity.
  constexpr uint32_t kInfinity = 0x7f800000;
  std::vector<uint32_t> partial(ParallelParts(x.elements(), kGrain), 0);
  ParallelForParts(x.elements(), kGrain, [&](int part, int64_t begin, int64_t end) {
    const float* data = x.data<float>();
    uint32_t largest = 0;
#pragma omp simd reduction(max : largest)
    for (int64_t i = begin; i < end; ++i) {
      largest = std::max(largest, std::bit_cast<uint32_t>(data[i]) & 0x7fffffffu);
    }
    partial[part] = largest;
  });
  const uint32_t largest = partial.empty() ? 0 : *std::max_element(partial.begin(), partial.end());
  return std::bit_cast<float>(std::min(largest, kInfinity));
}

SquareSum CpuKernels::SumOfSquares(const Tensor& x, float scale) {
  Span span(this);
  CHECK(scale > 0 && std::isfinite(scale)) << scale;
  // A power of two above every square. Bin i holds multiples of bound * 2^-(20 + 21 i): adding and
  // subtracting 1.5 * 2^52 such units rounds to a multiple. Sums of up to 2^33 terms stay exact.
  const double bound = std::ldexp(1.0, 2 * (std::ilogb(scale) + 1));
  const double m0 = bound * std::ldexp(1.5, 52 - 20);
  const double m1 = bound * std::ldexp(1.5, 52 - 41);
  const double m2 = bound * std::ldexp(1.5, 52 - 62);
  std::vector<SquareSum> partial(ParallelParts(x.elements(), kGrain));
  ParallelForParts(x.elements(), kGrain, [&](int part, int64_t begin, int64_t end) {
    const float* data = x.data<float>();
    double sum0 = 0, sum1 = 0, sum2 = 0;
#pragma omp simd reduction(+ : sum0, sum1, sum2)
    for (int64_t i = begin; i < end; ++i) {
      const double value = data[i];
      const double square = value * value;  // exact: 48 bits
      const double bin0 = (square + m0) - m0;
      const double rest0 = square - bin0;
      const double bin1 = (rest0 + m1) - m1;
      const double rest1 = rest0 - bin1;
      const double bin2 = (rest1 + m2) - m2;
      sum0 += bin0;
      sum1 += bin1;
      sum2 += bin2;
    }
    partial[part] = {{sum0, sum1, sum2}};
  });
  SquareSum sum;
  for (const SquareSum& part : partial) sum.Add(part);
  return sum;
}

}  // namespace lockstep
