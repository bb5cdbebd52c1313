#include "strategies/data_parallel/peak_memory.h"

#include <algorithm>

namespace lockstep {
namespace {

using Units = std::vector<UnitNeeds>;

Units InForward(Units units) {
  std::stable_sort(units.begin(), units.end(),
                   [](const UnitNeeds& a, const UnitNeeds& b) { return a.first < b.first; });
  return units;
}

Units InBackward(const Units& units) {
  Units order = InForward(units);
  std::erase_if(order, [](const UnitNeeds& unit) { return !unit.in_backward; });
  std::stable_sort(order.begin(), order.end(),
                   [](const UnitNeeds& a, const UnitNeeds& b) { return a.last > b.last; });
  return order;
}

// Bytes of a unit that is whole, or rests, or is about to go from one to the other. One that rests
// as a whole does not exist twice.
int64_t Bytes(const UnitNeeds& unit, bool is_whole, bool rests) {
  if (is_whole && rests && unit.resting == unit.whole) return unit.whole;
  return (is_whole ? unit.whole : 0) + (rests ? unit.resting : 0);
}

}  // namespace

int64_t PeakParameterBytes(const Units& units, bool recomputes) {
  int64_t peak = 0;
  const Units forward = InForward(units), backward = InBackward(units);
  for (size_t i = 0; i < forward.size(); ++i) {
    // While the first block of unit i runs: what has begun and is not over, and the next one; what
    // rests, and what is about to.
    int64_t live = 0;
    for (size_t j = 0; j < forward.size(); ++j) {
      const bool has_begun = j <= i;
      live += Bytes(forward[j], has_begun ? forward[j].last >= forward[i].first : j == i + 1,
                    has_begun ? forward[j].last <= forward[i].first : recomputes);
    }
    peak = std::max(peak, live);
  }
  for (size_t i = 0; i < backward.size(); ++i) {
    int64_t live = 0;
    for (size_t j = 0; j < backward.size(); ++j) {
      const bool has_begun = j <= i;
      live += Bytes(backward[j], has_begun ? backward[j].first <= backward[i].last : j == i + 1,
                    !has_begun);
    }
    peak = std::max(peak, live);
  }
  return peak;
}

}  // namespace lockstep
