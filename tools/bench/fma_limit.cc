#include "tools/bench/fma_limit.h"

#include <immintrin.h>

#include <algorithm>

#include "core/base/clock.h"
#include "core/base/parallel.h"

namespace lockstep {
namespace {

constexpr int kChains = 12;  // more than latency times throughput of any processor since 2013
constexpr long kRounds = 2'000'000;

// One round of all chains. In one statement, whose operands are registers: the compiler can neither
// spill an accumulator between two of them nor drop what nobody reads.
#define LS_FMA_ROUND(constraint)                                                           \
  asm volatile(                                                                            \
      "vfmadd213ps %12, %13, %0\n vfmadd213ps %12, %13, %1\n vfmadd213ps %12, %13, %2\n"   \
      "vfmadd213ps %12, %13, %3\n vfmadd213ps %12, %13, %4\n vfmadd213ps %12, %13, %5\n"   \
      "vfmadd213ps %12, %13, %6\n vfmadd213ps %12, %13, %7\n vfmadd213ps %12, %13, %8\n"   \
      "vfmadd213ps %12, %13, %9\n vfmadd213ps %12, %13, %10\n vfmadd213ps %12, %13, %11\n" \
      : "+" constraint(a), "+" constraint(b), "+" constraint(c), "+" constraint(d),        \
        "+" constraint(e), "+" constraint(f), "+" constraint(g), "+" constraint(h),        \
        "+" constraint(i), "+" constraint(j), "+" constraint(k), "+" constraint(l)         \
      : constraint(x), constraint(x))

__attribute__((target("avx512f"))) void RunAvx512() {
  const __m512 x = _mm512_set1_ps(0.5f);
  __m512 a = x, b = x, c = x, d = x, e = x, f = x, g = x, h = x, i = x, j = x, k = x, l = x;
  for (long round = 0; round < kRounds; ++round) LS_FMA_ROUND("v");
}

__attribute__((target("avx2,fma"))) void RunAvx2() {
  const __m256 x = _mm256_set1_ps(0.5f);
  __m256 a = x, b = x, c = x, d = x, e = x, f = x, g = x, h = x, i = x, j = x, k = x, l = x;
  for (long round = 0; round < kRounds; ++round) LS_FMA_ROUND("x");
}

#undef LS_FMA_ROUND

}  // namespace

double MeasureFmaLimit(int threads) {
  const bool wide = __builtin_cpu_supports("avx512f");
  const double flops = 2.0 * kChains * kRounds * (wide ? 16 : 8) * threads;
  const int before = MaxThreads();
  SetThreads(threads);
  double best = 0;
  for (int attempt = 0; attempt < 8; ++attempt) {
    const int64_t start = NowNanos();
    ParallelFor(threads, 1, [wide](int64_t, int64_t) { wide ? RunAvx512() : RunAvx2(); });
    best = std::max(best, flops / SecondsSince(start) * 1e-9);
  }
  SetThreads(before);
  return best;
}

}  // namespace lockstep
