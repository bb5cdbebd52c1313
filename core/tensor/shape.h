#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <initializer_list>
#include <ostream>
#include <string>

#include "absl/types/span.h"
#include "glog/logging.h"

namespace lockstep {

// The extents of a dense row-major tensor; the last dimension is contiguous. A scalar has rank 0.
class Shape {
 public:
  static constexpr int kMaxRank = 6;

  Shape() = default;
  Shape(std::initializer_list<int64_t> dims)
      : Shape(absl::MakeConstSpan(dims.begin(), dims.size())) {}
  explicit Shape(absl::Span<const int64_t> dims) : rank_(static_cast<int>(dims.size())) {
    CHECK_LE(rank_, kMaxRank);
    std::copy(dims.begin(), dims.end(), dims_.begin());
  }

  int rank() const { return rank_; }

  // Extent of a dimension; negative counts from the end: shape[-1] is the contiguous one.
  int64_t operator[](int dim) const { return dims_[dim < 0 ? dim + rank_ : dim]; }

  absl::Span<const int64_t> dims() const { return absl::MakeConstSpan(dims_.data(), rank_); }

  // The product of the extents, 1 for a scalar.
  int64_t elements() const;

  // Product of all extents but the last: how many rows of `shape[-1]` elements there are.
  int64_t rows() const { return rank_ == 0 || (*this)[-1] == 0 ? 1 : elements() / (*this)[-1]; }

  // This shape with one extent replaced.
  Shape With(int dim, int64_t extent) const;

  // "[2, 3]"
  std::string ToString() const;

  friend bool operator==(const Shape&, const Shape&) = default;  // unused extents stay 0
  friend std::ostream& operator<<(std::ostream& out, const Shape& shape) {
    return out << shape.ToString();
  }

 private:
  int rank_ = 0;
  std::array<int64_t, kMaxRank> dims_{};
};

}  // namespace lockstep
