// "Did you mean ...?"

#pragma once

#include <cstddef>
#include <cstdint>
#include <iterator>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include "absl/status/statusor.h"

namespace lockstep {

// Fewest insertions, deletions, substitutions and swaps of neighbours, each place edited once, that
// turn `a` into `b` (Damerau-Levenshtein in its restricted form, "optimal string alignment").
// O(|a| |b|) time, O(|b|) memory.
int64_t EditDistance(std::string_view a, std::string_view b);

// The candidate that somebody who wrote `name` most likely meant: the one that ends in ".name" when
// a dotted key's front was left out ("dp" for "mesh.dp"), or else the one at the smallest
// EditDistance; of several one with the same letters, or else the first. Empty when there are no
// candidates.
std::string NearestName(std::string_view name, std::span<const std::string> candidates);

// Up to five candidates, the nearest first, as a list for a message: "a, b, c". Empty when there
// are no candidates.
std::string NearestNames(std::string_view name, std::vector<std::string> candidates);

// The place of `name` among `names`. InvalidArgument where it is not there: "there is no operation
// 'all_redce'; did you mean all_reduce? There are gather, all_reduce", `what` being "operation".
absl::StatusOr<size_t> FindName(const std::string& what, const std::string& name,
                                std::span<const std::string> names);

// The same among values that name_of(value) names; returns the value.
template <typename Values, typename NameOf>
auto FindNamed(const std::string& what, const std::string& name, const Values& values,
               NameOf name_of) -> absl::StatusOr<std::decay_t<decltype(*std::begin(values))>> {
  std::vector<std::string> names;
  for (const auto& value : values) names.emplace_back(name_of(value));
  const absl::StatusOr<size_t> place = FindName(what, name, names);
  if (!place.ok()) return place.status();
  return *std::next(std::begin(values), static_cast<std::ptrdiff_t>(*place));
}

}  // namespace lockstep
