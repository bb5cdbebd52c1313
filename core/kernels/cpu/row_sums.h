// Sums and maxima along a row whose bits do not depend on the width of vectors (docs/numerics.md,
// "The tree"): element i goes to lane i % 16, and a fixed tree adds the lanes. The 16 lanes are one
// AVX-512 register or two of AVX2.

#pragma once

#include <algorithm>
#include <cstdint>
#include <limits>

namespace lockstep::cpu {

inline constexpr int64_t kLanes = 16;

// The sum of 16 lanes: the upper half is added to the lower one until one lane is left.
inline float SumLanes(float* lanes) {
  for (int64_t half = kLanes / 2; half > 0; half /= 2) {
    for (int64_t l = 0; l < half; ++l) lanes[l] += lanes[l + half];
  }
  return lanes[0];
}

// The sum of term(i) for i in [0, count), where term returns a float and has no side effects other
// than writing element i of arrays: it is called once for each i.
//
//   const float mean = SumRow(width, [&](int64_t i) { return row[i]; }) / width;
template <typename Term>
inline float SumRow(int64_t count, Term&& term) {
  float lanes[kLanes] = {};
  const int64_t whole = count / kLanes * kLanes;
  for (int64_t i = 0; i < whole; i += kLanes) {
#pragma omp simd
    for (int64_t l = 0; l < kLanes; ++l) lanes[l] += term(i + l);
  }
  for (int64_t i = whole; i < count; ++i) lanes[i - whole] += term(i);
  return SumLanes(lanes);
}

// Two sums at once: the same with a term that returns {first, second}.
struct TwoSums {
  float first, second;
};
template <typename Terms>
inline TwoSums SumRowTwice(int64_t count, Terms&& terms) {
  float first[kLanes] = {}, second[kLanes] = {};
  const int64_t whole = count / kLanes * kLanes;
  for (int64_t i = 0; i < whole; i += kLanes) {
#pragma omp simd
    for (int64_t l = 0; l < kLanes; ++l) {
      const TwoSums both = terms(i + l);
      first[l] += both.first;
      second[l] += both.second;
    }
  }
  for (int64_t i = whole; i < count; ++i) {
    const TwoSums both = terms(i);
    first[i - whole] += both.first;
    second[i - whole] += both.second;
  }
  return {SumLanes(first), SumLanes(second)};
}

// The largest of x[0 .. count), NaN ignored; -infinity where there is none.
inline float LargestOfRow(const float* x, int64_t count) {
  float lanes[kLanes];
  std::fill_n(lanes, kLanes, -std::numeric_limits<float>::infinity());
  const int64_t whole = count / kLanes * kLanes;
  for (int64_t i = 0; i < whole; i += kLanes) {
    for (int64_t l = 0; l < kLanes; ++l) lanes[l] = x[i + l] > lanes[l] ? x[i + l] : lanes[l];
  }
  for (int64_t i = whole; i < count; ++i) {
    lanes[i - whole] = x[i] > lanes[i - whole] ? x[i] : lanes[i - whole];
  }
  for (int64_t half = kLanes / 2; half > 0; half /= 2) {
    for (int64_t l = 0; l < half; ++l) {
      lanes[l] = lanes[l + half] > lanes[l] ? lanes[l + half] : lanes[l];
    }
  }
  return lanes[0];
}

}  // namespace lockstep::cpu
