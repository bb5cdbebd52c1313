#include "core/tensor/slice.h"

#include <algorithm>

namespace lockstep {

Range EvenRange(int64_t extent, int64_t ranges, int64_t index) {
  const int64_t size = extent / ranges, longer = extent % ranges;
  return {.first = index * size + std::min(index, longer), .count = size + (index < longer)};
}

std::vector<ElementRange> RangesWithin(const std::vector<ElementRange>& runs, const Range& range) {
  std::vector<ElementRange> within;
  for (const ElementRange& run : runs) {
    const int64_t begin = std::max(run.in_slice, range.first);
    const int64_t end = std::min(run.in_slice + run.elements, range.first + range.count);
    if (begin >= end) continue;
    within.push_back({.in_whole = run.in_whole + begin - run.in_slice,
                      .in_slice = begin - range.first,
                      .elements = end - begin});
  }
  return within;
}

int64_t Slice::extent() const {
  int64_t extent = 0;
  for (const Range& range : ranges) extent += range.count;
  return extent;
}

std::vector<ElementRange> Slice::ElementRanges(absl::Span<const int64_t> whole) const {
  int64_t outer = 1, inner = 1;  // extents before and behind the dimension
  for (int64_t d = 0; d < static_cast<int64_t>(whole.size()); ++d) {
    if (d < dimension) outer *= whole[d];
    if (d > dimension) inner *= whole[d];
  }
  std::vector<ElementRange> runs;
  int64_t in_slice = 0;
  for (int64_t o = 0; o < outer; ++o) {
    for (const Range& range : ranges) {
      const int64_t in_whole = (o * whole[dimension] + range.first) * inner;
      const int64_t elements = range.count * inner;
      if (elements == 0) continue;
      if (!runs.empty() && runs.back().in_whole + runs.back().elements == in_whole) {
        runs.back().elements += elements;
      } else {
        runs.push_back({.in_whole = in_whole, .in_slice = in_slice, .elements = elements});
      }
      in_slice += elements;
    }
  }
  return runs;
}

}  // namespace lockstep
