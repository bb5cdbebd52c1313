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

void PeakBytes::Raise(const PeakBytes& other) {
  for (int c = 0; c < kMemoryClasses; ++c) classes[c] = std::max(classes[c], other.classes[c]);
  total = std::max(total, other.total);
}

PeakBytes PeaksOf(const MemoryBooks& books) {
  PeakBytes peaks = {.total = books.peak_total()};
  for (int c = 0; c < kMemoryClasses; ++c) {
    peaks.classes[c] = books.peak(static_cast<MemoryClass>(c));
  }
  return peaks;
}

PeakBytes LiveBytes::Pass(const RecordedStretch& stretch) {
  if (!stretch.gives_back) {
    const PeakBytes peaks = Over(live_, stretch.peaks);
    live_ = live_ + stretch.kept;
    return peaks;
  }
  PeakBytes peaks = Over(live_, stretch.peaks_before);
  // As if it had given back here what it gave back when it was recorded.
  const ClassBytes base = live_ - sent_ + stretch.given_back;
  peaks.Raise(Over(base, stretch.peaks));
  live_ = base + stretch.kept;
  sent_ = stretch.sent;
  return peaks;
}

}  // namespace lockstep
