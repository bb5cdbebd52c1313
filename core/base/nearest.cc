#include "core/base/nearest.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <numeric>  // std::iota
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_join.h"
#include "core/base/status.h"

namespace lockstep {

int64_t EditDistance(std::string_view a, std::string_view b) {
  // Rows of the table "first i characters of a to first j characters of b" for i, i - 1 and i - 2.
  std::vector<int64_t> row(b.size() + 1);
  std::vector<int64_t> previous(b.size() + 1);
  std::vector<int64_t> before_previous(b.size() + 1);
  std::iota(row.begin(), row.end(), 0);
  for (size_t i = 1; i <= a.size(); ++i) {
    std::swap(before_previous, previous);
    std::swap(previous, row);
    row[0] = static_cast<int64_t>(i);
    for (size_t j = 1; j <= b.size(); ++j) {
      const int64_t substitution = previous[j - 1] + (a[i - 1] == b[j - 1] ? 0 : 1);
      row[j] = std::min({substitution, previous[j] + 1, row[j - 1] + 1});
      if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1]) {
        row[j] = std::min(row[j], before_previous[j - 2] + 1);
      }
    }
  }
  return row[b.size()];
}

std::string NearestName(std::string_view name, std::span<const std::string> candidates) {
  const std::string suffix = "." + std::string(name);
  const std::string* nearest = nullptr;
  std::pair<int64_t, bool> least;  // the distance, and whether letters differ
  for (const std::string& candidate : candidates) {
    const std::pair<int64_t, bool> distance = {
        candidate.ends_with(suffix) ? 0 : EditDistance(name, candidate),
        !std::ranges::is_permutation(name, candidate)};
    if (nearest == nullptr || distance < least) {
      nearest = &candidate;
      least = distance;
    }
  }
  return nearest == nullptr ? std::string() : *nearest;
}

std::string NearestNames(std::string_view name, std::vector<std::string> candidates) {
  constexpr int kMost = 5;
  std::string text;
  for (int i = 0; i < kMost && !candidates.empty(); ++i) {
    const std::string nearest = NearestName(name, candidates);
    text += (text.empty() ? "" : ", ") + nearest;
    std::erase(candidates, nearest);
  }
  return text;
}

absl::StatusOr<size_t> FindName(const std::string& what, const std::string& name,
                                std::span<const std::string> names) {
  const auto found = std::ranges::find(names, name);
  if (found != names.end()) return static_cast<size_t>(found - names.begin());
  return InvalidArgument("there is no ", what, " '", name, "'; did you mean ",
                         NearestName(name, names), "? There are ", absl::StrJoin(names, ", "));
}

}  // namespace lockstep
