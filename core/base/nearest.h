// "Did you mean ...?"

#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep {

// Fewest insertions, deletions, substitutions and swaps of neighbours, each place edited once, that
// turn `a` into `b` (Damerau-Levenshtein in its restricted form, "optimal string alignment").
// O(|a| |b|) time, O(|b|) memory.
int64_t EditDistance(std::string_view a, std::string_view b);

// The candidate that somebody who wrote `name` most likely meant: the one that ends in ".name" when
// a dotted key's front was left out ("dp" for "mesh.dp"), or else the one at the smallest
// EditDistance, the first of several. Empty when there are no candidates.
std::string NearestName(std::string_view name, std::span<const std::string> candidates);

// Up to five candidates, the nearest first, as a list for a message: "a, b, c". Empty when there
// are no candidates.
std::string NearestNames(std::string_view name, std::vector<std::string> candidates);

}  // namespace lockstep
