#include "strategies/data_parallel/peak_memory.h"

#include <algorithm>
#include <deque>
#include <iterator>  // std::ssize

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

int64_t Sum(const Units& units, int64_t UnitNeeds::*bytes) {
  int64_t sum = 0;
  for (const UnitNeeds& unit : units) sum += unit.*bytes;
  return sum;
}

}  // namespace

int64_t PeakParameterBytes(const Units& units, bool recomputes) {
  const bool stay = std::all_of(units.begin(), units.end(),
                                [](const UnitNeeds& unit) { return unit.resting == unit.whole; });
  if (stay) return Sum(units, &UnitNeeds::whole);
  int64_t peak = 0;
  const Units forward = InForward(units);
  for (size_t i = 0; i < forward.size(); ++i) {
    // While the first block of unit i runs: what has begun and is not over, and the next one; what
    // rests, and what is about to.
    int64_t live = i + 1 < forward.size() ? forward[i + 1].whole : 0;
    for (size_t j = 0; j <= i; ++j) {
      if (forward[j].last >= forward[i].first) live += forward[j].whole;
      if (forward[j].last <= forward[i].first) live += forward[j].resting;
    }
    for (size_t j = i + 1; recomputes && j < forward.size(); ++j) live += forward[j].resting;
    peak = std::max(peak, live);
  }
  const Units backward = InBackward(units);
  for (size_t i = 0; i < backward.size(); ++i) {
    int64_t live = i + 1 < backward.size() ? backward[i + 1].whole : 0;
    for (size_t j = 0; j < backward.size(); ++j) {
      if (j <= i && backward[j].first <= backward[i].last) live += backward[j].whole;
      if (j > i) live += backward[j].resting;
    }
    peak = std::max(peak, live);
  }
  return peak;
}

int64_t PeakGradientBytes(const Units& units, int64_t sums_under_way) {
  int64_t peak = 0, live = 0;
  std::deque<int64_t> under_way;  // bytes that each gives back
  int last = 0;
  for (const UnitNeeds& unit : units) last = std::max(last, unit.last);
  const Units backward = InBackward(units);
  for (int block = last; block >= 0; --block) {
    for (const UnitNeeds& unit : backward) {
      if (unit.last == block) live += unit.gradient + unit.tied;
    }
    peak = std::max(peak, live);
    for (const UnitNeeds& unit : backward) {
      if (unit.first != block || unit.gradient == 0) continue;
      if (std::ssize(under_way) == sums_under_way) {
        live -= under_way.front();
        under_way.pop_front();
      }
      live -= unit.tied;
      under_way.push_back(unit.gradient);
    }
  }
  return peak;
}

int64_t AllGradientBytes(const Units& units) {
  return Sum(units, &UnitNeeds::gradient) + Sum(units, &UnitNeeds::tied);
}

}  // namespace lockstep
