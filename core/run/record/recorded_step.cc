#include "core/run/record/recorded_step.h"

#include <algorithm>
#include <numeric>

namespace lockstep {
namespace {

ClassBytes operator+(ClassBytes left, const ClassBytes& right) {
  for (int c = 0; c < kMemoryClasses; ++c) left[c] += right[c];
  return left;
}

ClassBytes operator-(ClassBytes left, const ClassBytes& right) {
  for (int c = 0; c < kMemoryClasses; ++c) left[c] -= right[c];
  return left;
}

PeakBytes Over(const ClassBytes& live, const PeakBytes& peaks) {
  return {live + peaks.classes,
          std::accumulate(live.begin(), live.end(), int64_t{0}) + peaks.total};
}

}  // namespace

PeakBytes LiveBytes::Pass(const RecordedStretch& stretch) {
  if (!stretch.gives_back) {
    const PeakBytes peaks = Over(live_, stretch.peaks);
    live_ = live_ + stretch.kept;
    return peaks;
  }
  PeakBytes peaks = Over(live_, stretch.peaks_before);
  // As if it had given back here what it gave back when it was recorded.
  const ClassBytes base = live_ - sent_ + stretch.given_back;
  const PeakBytes then = Over(base, stretch.peaks);
  for (int c = 0; c < kMemoryClasses; ++c) {
    peaks.classes[c] = std::max(peaks.classes[c], then.classes[c]);
  }
  peaks.total = std::max(peaks.total, then.total);
  live_ = base + stretch.kept;
  sent_ = stretch.sent;
  return peaks;
}

}  // namespace lockstep
