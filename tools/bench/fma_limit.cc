#include "tools/bench/fma_limit.h"

#include <immintrin.h>

#include <algorithm>

#include "core/base/clock.h"
#include "core/base/parallel.h"

namespace lockstep {
namespace {

constexpr int kChains = 12;  // more than latency times throughput of any processor since 2013
constexpr long kRounds = 2'000'000;

// The accumulators are tied to registers by the asm statements: nothing is spilled or hoisted.
__attribute__((target("avx512f"))) double RunAvx512() {
  __m512 a[kChains];
  for (__m512& chain : a) chain = _mm512_set1_ps(1.0f);
  const __m512 x = _mm512_set1_ps(0.999f), y = _mm512_set1_ps(0.001f);
  for (long i = 0; i < kRounds; ++i) {
#pragma GCC unroll 12
    for (int c = 0; c < kChains; ++c) {
      asm volatile("vfmadd213ps %2, %1, %0" : "+v"(a[c]) : "v"(x), "v"(y));
    }
  }
  __m512 sum = a[0];
  for (int c = 1; c < kChains; ++c) sum = _mm512_add_ps(sum, a[c]);
  return _mm512_cvtss_f32(sum);
}

__attribute__((target("avx2,fma"))) double RunAvx2() {
  __m256 a[kChains];
  for (__m256& chain : a) chain = _mm256_set1_ps(1.0f);
  const __m256 x = _mm256_set1_ps(0.999f), y = _mm256_set1_ps(0.001f);
  for (long i = 0; i < kRounds; ++i) {
#pragma GCC unroll 12
    for (int c = 0; c < kChains; ++c) {
      asm volatile("vfmadd213ps %2, %1, %0" : "+x"(a[c]) : "x"(x), "x"(y));
    }
  }
  __m256 sum = a[0];
  for (int c = 1; c < kChains; ++c) sum = _mm256_add_ps(sum, a[c]);
  return _mm256_cvtss_f32(sum);
}

}  // namespace

double MeasureFmaLimit(int threads) {
  const bool wide = __builtin_cpu_supports("avx512f");
  const double flops = 2.0 * kChains * kRounds * (wide ? 16 : 8) * threads;
  const int before = MaxThreads();
  SetThreads(threads);
  double best = 0;
  for (int attempt = 0; attempt < 8; ++attempt) {
    const int64_t start = NowNanos();
    ParallelFor(threads, 1, [wide](int64_t, int64_t) {
      volatile double sink = wide ? RunAvx512() : RunAvx2();
      (void)sink;
    });
    best = std::max(best, flops / SecondsSince(start) * 1e-9);
  }
  SetThreads(before);
  return best;
}

}  // namespace lockstep
