#include "core/nn/split.h"

#include <algorithm>
#include <cstddef>
#include <string>

#include "glog/logging.h"

namespace lockstep {
bool MatchesLayer(const std::string& pattern, const std::string& layer_name) {
  size_t p = 0, t = 0;
  size_t after_star = std::string::npos, tried = 0;  // where the last star's text ends
  while (true) {
    if (p == pattern.size()) {
      if (t == layer_name.size() || layer_name[t] == '.') return true;
    } else if (pattern[p] == '*') {
      after_star = ++p;
      tried = t;
      continue;
    } else if (t < layer_name.size() && pattern[p] == layer_name[t]) {
      ++p;
      ++t;
      continue;
    }
    // The last star takes one more character.
    if (after_star == std::string::npos || tried == layer_name.size()) return false;
    p = after_star;
    t = ++tried;
  }
}

SplitStyle StyleOf(const std::vector<SplitRule>& plan, const std::string& layer_name) {
  for (const SplitRule& rule : plan) {
    if (MatchesLayer(rule.pattern, layer_name)) return rule.style;
  }
  return SplitStyle::kReplicated;
}

Range OwnRows(const SplitGroup* sequence, const TokenOrder& tokens) {
  Range own = {.first = 0, .count = tokens.held_rows()};
  if (sequence != nullptr) own = EvenRange(own.count, sequence->size(), sequence->index());
  own.first += tokens.first_row();
  return own;
}

int FeatureCut::all_leaves() const {
  return group == nullptr ? features : std::max(features, group->size());
}

int FeatureCut::leaves() const {
  return group == nullptr ? features : std::max(1, features / group->size());
}

int FeatureCut::first_leaf() const { return group == nullptr ? 0 : group->index() * leaves(); }

Range FeatureCut::FeaturesAt(int64_t extent, int first, int count) const {
  const Range last = EvenRange(extent, all_leaves(), first + count - 1);
  const int64_t begin = EvenRange(extent, all_leaves(), first).first;
  return {.first = begin, .count = last.first + last.count - begin};
}

FeatureLeaves FeatureCut::Leaves(int64_t extent) const {
  FeatureLeaves all;
  const Slice own = {.dimension = 0, .ranges = {Own(extent)}};
  for (int i = 0; leaves() > 1 && i < leaves(); ++i) {
    all.push_back(PlacesIn(own, {FeaturesAt(extent, first_leaf() + i, 1)}));
  }
  return all;
}

std::vector<Range> PlacesIn(const Slice& own, const std::vector<Range>& ranges) {
  std::vector<Range> places;
  for (const Range& range : ranges) {
    int64_t place = 0;
    const size_t before = places.size();
    for (const Range& from : own.ranges) {
      if (range.first >= from.first && range.first + range.count <= from.first + from.count) {
        places.push_back({place + range.first - from.first, range.count});
        break;
      }
      place += from.count;
    }
    CHECK_EQ(places.size(), before + 1) << "a range that the slice does not have";
  }
  return places;
}

}  // namespace lockstep
