// Sums and maxima along a row whose bits do not depend on the width of vectors (docs/numerics.md,
// "The tree"): element i goes to lane i % 16, and a fixed tree adds the lanes. The 16 lanes are one
// AVX-512 register or two of AVX2.

#pragma once

#include <cstdint>
#include <cstring>
#include <limits>

namespace lockstep::cpu {

inline constexpr int64_t kLanes = 16;

namespace row_sums_internal {

#ifdef __AVX512F__
constexpr int kRegisters = 1;
#else
constexpr int kRegisters = 2;
#endif

// The lanes in vector registers. Written as an array of floats, compilers keep them in memory
// between the elements of a row.
struct Lanes {
  typedef float Register __attribute__((vector_size(64 / kRegisters)));

  Register registers[kRegisters];

  static Lanes Of(float value) {
    Lanes lanes;
    for (Register& lane : lanes.registers) lane = Register{} + value;
    return lanes;
  }
  static Lanes From(const float* values) {
    Lanes lanes;
    for (int r = 0; r < kRegisters; ++r) {
      std::memcpy(&lanes.registers[r], values + r * kLanes / kRegisters, sizeof(Register));
    }
    return lanes;
  }
  void Add(const Lanes& other) {
    for (int r = 0; r < kRegisters; ++r) registers[r] += other.registers[r];
  }
  // Keeps the larger of each two; its own where the other is NaN.
  void Max(const Lanes& other) {
    for (int r = 0; r < kRegisters; ++r) {
      registers[r] = other.registers[r] > registers[r] ? other.registers[r] : registers[r];
    }
  }
};

// Merges lanes until one is left: the upper half into the lower half.
template <typename Merge>
inline float MergeLanes(const Lanes& lanes, Merge&& merge) {
  static_assert(kLanes == 16);
  float values[kLanes];
  for (int r = 0; r < kRegisters; ++r) {
    std::memcpy(values + r * kLanes / kRegisters, &lanes.registers[r], sizeof(Lanes::Register));
  }
  for (int l = 0; l < 8; ++l) values[l] = merge(values[l], values[l + 8]);
  for (int l = 0; l < 4; ++l) values[l] = merge(values[l], values[l + 4]);
  for (int l = 0; l < 2; ++l) values[l] = merge(values[l], values[l + 2]);
  return merge(values[0], values[1]);
}

inline float SumOf(const Lanes& lanes) {
  return MergeLanes(lanes, [](float a, float b) { return a + b; });
}

// The last `count` < 16 elements of a row, and `padding` in the other lanes.
inline Lanes Rest(const float* x, int64_t count, float padding) {
  float values[kLanes];
#pragma omp simd
  for (int64_t l = 0; l < kLanes; ++l) values[l] = l < count ? x[l] : padding;
  return Lanes::From(values);
}

}  // namespace row_sums_internal

// The sum of term(i) for i in [0, count). term returns a float and is called once for each i; it
// may write elements i of arrays, and depends on no other call.
//
//   const float squares = SumRow(width, [=](int64_t i) { return row[i] * row[i]; });
template <typename Term>
inline float SumRow(int64_t count, Term&& term) {
  using row_sums_internal::Lanes;
  Lanes sum = Lanes::Of(0);
  const int64_t whole = count / kLanes * kLanes, rest = count - whole;
  float terms[kLanes];
  for (int64_t i = 0; i < whole; i += kLanes) {
#pragma omp simd
    for (int64_t l = 0; l < kLanes; ++l) terms[l] = term(i + l);
    sum.Add(Lanes::From(terms));
  }
  if (rest > 0) {
    // Zeros change no lane: none is ever -0.
#pragma omp simd
    for (int64_t l = 0; l < kLanes; ++l) terms[l] = l < rest ? term(whole + l) : 0.0f;
    sum.Add(Lanes::From(terms));
  }
  return row_sums_internal::SumOf(sum);
}

// The sum of x[0 .. count).
inline float SumOfRow(const float* x, int64_t count) {
  using row_sums_internal::Lanes;
  Lanes sum = Lanes::Of(0);
  const int64_t whole = count / kLanes * kLanes, rest = count - whole;
  for (int64_t i = 0; i < whole; i += kLanes) sum.Add(Lanes::From(x + i));
  if (rest > 0) sum.Add(row_sums_internal::Rest(x + whole, rest, 0));
  return row_sums_internal::SumOf(sum);
}

// Two sums at once: the same with a term that returns {first, second}.
struct TwoSums {
  float first, second;
};
template <typename Terms>
inline TwoSums SumRowTwice(int64_t count, Terms&& terms_of) {
  using row_sums_internal::Lanes;
  Lanes sum = Lanes::Of(0), other_sum = Lanes::Of(0);
  const int64_t whole = count / kLanes * kLanes, rest = count - whole;
  float terms[kLanes], others[kLanes];
  const auto add = [&] {
    sum.Add(Lanes::From(terms));
    other_sum.Add(Lanes::From(others));
  };
  for (int64_t i = 0; i < whole; i += kLanes) {
#pragma omp simd
    for (int64_t l = 0; l < kLanes; ++l) {
      const TwoSums both = terms_of(i + l);
      terms[l] = both.first;
      others[l] = both.second;
    }
    add();
  }
  if (rest > 0) {
#pragma omp simd
    for (int64_t l = 0; l < kLanes; ++l) {
      const TwoSums both = l < rest ? terms_of(whole + l) : TwoSums{0, 0};
      terms[l] = both.first;
      others[l] = both.second;
    }
    add();
  }
  return {row_sums_internal::SumOf(sum), row_sums_internal::SumOf(other_sum)};
}

// The largest of x[0 .. count), NaN ignored; -infinity where there is none.
inline float LargestOfRow(const float* x, int64_t count) {
  using row_sums_internal::Lanes;
  constexpr float kLowest = -std::numeric_limits<float>::infinity();
  Lanes largest = Lanes::Of(kLowest);
  const int64_t whole = count / kLanes * kLanes, rest = count - whole;
  for (int64_t i = 0; i < whole; i += kLanes) largest.Max(Lanes::From(x + i));
  if (rest > 0) largest.Max(row_sums_internal::Rest(x + whole, rest, kLowest));
  return row_sums_internal::MergeLanes(largest, [](float a, float b) { return b > a ? b : a; });
}

}  // namespace lockstep::cpu
