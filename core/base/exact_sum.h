// Sums of fp32 numbers that need no order: losses (docs/numerics.md, "Exact sums").

#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

namespace lockstep {

// The exact sum of up to 2^29 fp32 numbers of any magnitude. Any order, and any division of the
// numbers among sums that are then added, gives the same bits.
//
// A number is an integer of 24 bits times a power of two. Its bits are cut at the places -149,
// -125, -101, ..., where bins begin, so it adds an integer below 2^24 to each of two bins; a bin is
// a double and adds such integers without rounding. Infinity and NaN go to the first bin as they
// are, and pass from there into the total (the idea of bins: Demmel and Nguyen, "Fast Reproducible
// Floating-Point Summation", ARITH 2013).
class ExactSum {
 public:
  void Add(float value);
  void Add(const ExactSum& other) {
    for (size_t i = 0; i < bins_.size(); ++i) bins_[i] += other.bins_[i];
  }

  // The sum rounded to double, within 1 ulp.
  double Total() const;

  // What ranks add up element by element: sums of bins are the bins of the sum.
  std::array<double, 12>& bins() { return bins_; }

  // Whether two finite sums are equal before they are rounded.
  bool operator==(const ExactSum&) const = default;

 private:
  std::array<double, 12> bins_ = {};
};

}  // namespace lockstep
