#pragma once

#include <cstdint>
#include <vector>

#include "absl/types/span.h"
#include "core/tensor/shape.h"

namespace lockstep {

// Consecutive indices along a dimension.
struct Range {
  int64_t first = 0;
  int64_t count = 0;

  friend bool operator==(const Range&, const Range&) = default;
};

// Range `index` of [0, extent) divided into `ranges` consecutive ranges whose sizes differ by one
// at most, the longer ones first.
Range EvenRange(int64_t extent, int64_t ranges, int64_t index);

// Elements that lie one behind the other both in a whole tensor and in a slice of it.
struct ElementRange {
  int64_t in_whole = 0;  // where they begin, counted in elements of the row-major whole
  int64_t in_slice = 0;  // and of the slice
  int64_t elements = 0;
};

// Those ranges of a slice, or what of them lies in `range` of its elements, as the ranges of a
// slice that has these only.
std::vector<ElementRange> RangesWithin(const std::vector<ElementRange>& ranges, const Range& range);

// The elements of a tensor whose indices along one dimension lie in some ranges: what a rank of
// tensor parallelism holds of a weight. A packed projection of queries, keys and values has three
// ranges.
struct Slice {
  int64_t dimension = 0;
  std::vector<Range> ranges;  // ascending, none overlaps another

  // Indices in all ranges together.
  int64_t extent() const;
  // The shape of the slice.
  Shape ShapeOf(const Shape& whole) const { return whole.With(Dimension(), extent()); }
  // All of its elements in their order; no range is empty, none continues the one before.
  std::vector<ElementRange> ElementRanges(absl::Span<const int64_t> whole) const;

  friend bool operator==(const Slice&, const Slice&) = default;

 private:
  int Dimension() const { return static_cast<int>(dimension); }
};

}  // namespace lockstep
