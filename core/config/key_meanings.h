// What each key of a configuration means, in a line: --help and docs/configuration.md say it, and
// whoever mistypes a key finds the right one among these.

#pragma once

#include <span>
#include <string_view>

namespace lockstep {

struct KeyMeaning {
  std::string_view key;      // dotted: "schedule.learning_rate"
  std::string_view meaning;  // with its unit where it has one
};

// All keys, sorted by table. Kinds of a table that share a key share its line.
std::span<const KeyMeaning> KeyMeanings();

// The meaning of one; empty where there is no such key.
std::string_view MeaningOf(std::string_view key);

}  // namespace lockstep
