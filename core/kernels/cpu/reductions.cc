// Reductions whose result goes to the host.

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <vector>

#include "core/base/parallel.h"
#include "core/kernels/cpu/cpu_kernels.h"
#include "core/kernels/cpu/float_elements.h"
#include "core/kernels/cpu/span.h"
#include "glog/logging.h"

namespace lockstep {
namespace {

constexpr int64_t kGrain = 1 << 14;  // elements below which a fork does not pay

// What cuts a square into the bins of SquareSum: bin i holds multiples of bound * 2^-(20 + 21 i),
// where bound is a power of two above every square; adding and subtracting 1.5 * 2^52 such units
// rounds to a multiple. Sums of up to 2^33 terms stay exact.
struct Bins {
  explicit Bins(float scale)
      : bound(std::ldexp(1.0, 2 * (std::ilogb(scale) + 1))),
        m0(bound * std::ldexp(1.5, 52 - 20)),
        m1(bound * std::ldexp(1.5, 52 - 41)),
        m2(bound * std::ldexp(1.5, 52 - 62)) {}

  double bound, m0, m1, m2;
};

SquareSum AddSquares(Bins bins, const float* data, int64_t count) {
  const double m0 = bins.m0, m1 = bins.m1, m2 = bins.m2;
  double sum0 = 0, sum1 = 0, sum2 = 0;
  // Any order gives the same bits: no addition of bins rounds.
#pragma omp simd reduction(+ : sum0, sum1, sum2)
  for (int64_t i = 0; i < count; ++i) {
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
  return {{sum0, sum1, sum2}};
}

}  // namespace

ExactSum CpuKernels::SumOfAll(absl::Span<const Tensor> tensors) {
  const std::vector<Span::TensorRef> all(tensors.begin(), tensors.end());
  Span span(this, all, {});
  ExactSum sum;
  if (SkipsLoops()) return sum;
  for (const Tensor& x : tensors) {
    CHECK(x.dtype() == DType::kF32) << Name(x.dtype());
    for (float value : x.span<float>()) sum.Add(value);
  }
  return sum;
}

float CpuKernels::MaxMagnitude(const Tensor& x) {
  Span span(this, {x}, {});
  if (SkipsLoops()) return 1;  // as in most steps: neither zero nor infinite
  // Without their sign, floats order as their bits do, NaN above infinity.
  constexpr uint32_t kInfinity = 0x7f800000;
  std::vector<uint32_t> partial(ParallelChunks(x.elements(), kGrain), 0);
  ParallelForChunks(x.elements(), kGrain, [&](int chunk, int64_t begin, int64_t end) {
    cpu::FloatInput input(x, cpu::kStretch);
    cpu::ForStretches(begin, end, cpu::kStretch, [&](int64_t first, int64_t count) {
      const float* data = input.Load(first, count);
      uint32_t largest = partial[chunk];
#pragma omp simd reduction(max : largest)
      for (int64_t i = 0; i < count; ++i) {
        largest = std::max(largest, std::bit_cast<uint32_t>(data[i]) & 0x7fffffffu);
      }
      partial[chunk] = largest;
    });
  });
  const uint32_t largest = partial.empty() ? 0 : *std::max_element(partial.begin(), partial.end());
  return std::bit_cast<float>(std::min(largest, kInfinity));
}

SquareSum CpuKernels::SumOfSquares(const Tensor& x, float scale) {
  Span span(this, {x}, {});
  CHECK(scale > 0 && std::isfinite(scale)) << scale;
  const Bins bins(scale);
  std::vector<SquareSum> partial(ParallelChunks(x.elements(), kGrain));
  ParallelForChunks(x.elements(), kGrain, [&](int chunk, int64_t begin, int64_t end) {
    cpu::FloatInput input(x, cpu::kStretch);
    cpu::ForStretches(begin, end, cpu::kStretch, [&](int64_t first, int64_t count) {
      partial[chunk].Add(AddSquares(bins, input.Load(first, count), count));
    });
  });
  SquareSum sum;
  for (const SquareSum& chunk : partial) sum.Add(chunk);
  return sum;
}

}  // namespace lockstep
