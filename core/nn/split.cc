#include "core/nn/split.h"

#include <algorithm>

#include "absl/strings/string_view.h"
#include "glog/logging.h"

namespace lockstep {
namespace {

// Whether `text` is the pattern, whose stars stand for any characters.
bool Matches(absl::string_view pattern, absl::string_view text) {
  // Behind the last star: where the pattern goes on, and where in the text that was tried last.
  size_t after_star = absl::string_view::npos, tried = 0;
  size_t p = 0;
  for (size_t t = 0; t < text.size();) {
    if (p < pattern.size() && pattern[p] == '*') {
      after_star = ++p;
      tried = t;
    } else if (p < pattern.size() && pattern[p] == text[t]) {
      ++p;
      ++t;
    } else if (after_star != absl::string_view::npos) {
      p = after_star;
      t = ++tried;
    } else {
      return false;
    }
  }
  return pattern.find_first_not_of('*', p) == absl::string_view::npos;
}

}  // namespace

bool MatchesLayer(const std::string& pattern, const std::string& layer_name) {
  absl::string_view name = layer_name;
  while (!Matches(pattern, name)) {
    const size_t dot = name.rfind('.');
    if (dot == absl::string_view::npos) return false;
    name = name.substr(0, dot);
  }
  return true;
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
