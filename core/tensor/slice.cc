#include "core/tensor/slice.h"

#include <algorithm>

namespace lockstep {

Range EvenPart(int64_t extent, int64_t parts, int64_t index) {
  const int64_t size = extent / parts, longer = extent % parts;
  return {.first = index * size + std::min(index, longer), .count = size + (index < longer)};
}

std::vector<PartRun> RunsWithin(const std::vector<PartRun>& runs, const Range& range) {
  std::vector<PartRun> within;
  for (const PartRun& run : runs) {
    const int64_t begin = std::max(run.in_part, range.first);
    const int64_t end = std::min(run.in_part + run.elements, range.first + range.count);
    if (begin >= end) continue;
    within.push_back({.in_whole = run.in_whole + begin - run.in_part,
                      .in_part = begin - range.first,
                      .elements = end - begin});
  }
  return within;
}

int64_t Slice::extent() const {
  int64_t extent = 0;
  for (const Range& range : ranges) extent += range.count;
  return extent;
}

std::vector<PartRun> Slice::Runs(absl::Span<const int64_t> whole) const {
  int64_t outer = 1, inner = 1;  // extents before and behind the dimension
  for (int64_t d = 0; d < static_cast<int64_t>(whole.size()); ++d) {
    if (d < dimension) outer *= whole[d];
    if (d > dimension) inner *= whole[d];
  }
  std::vector<PartRun> runs;
  int64_t in_part = 0;
  for (int64_t o = 0; o < outer; ++o) {
    for (const Range& range : ranges) {
      const int64_t in_whole = (o * whole[dimension] + range.first) * inner;
      const int64_t elements = range.count * inner;
      if (elements == 0) continue;
      if (!runs.empty() && runs.back().in_whole + runs.back().elements == in_whole) {
        runs.back().elements += elements;
      } else {
        runs.push_back({.in_whole = in_whole, .in_part = in_part, .elements = elements});
      }
      in_part += elements;
    }
  }
  return runs;
}

}  // namespace lockstep
