#pragma once

#include <cstddef>
#include <string_view>

#include "nlohmann/json.hpp"

namespace lockstep {

// How many lists and objects may lie inside each other in JSON that is read from files. What copies
// a value or writes it calls itself for each level, and ends the program where the stack ends.
inline constexpr int kDeepestJson = 100;

// How deep the lists and objects of a text lie inside each other, at most.
inline int NestingOf(std::string_view json) {
  int depth = 0, deepest = 0;
  bool is_in_string = false;
  for (size_t i = 0; i < json.size(); ++i) {
    const char c = json[i];
    if (is_in_string && c == '\\') {
      ++i;  // whatever it is, it ends no string
    } else if (c == '"') {
      is_in_string = !is_in_string;
    } else if (!is_in_string && (c == '[' || c == '{')) {
      deepest = ++depth > deepest ? depth : deepest;
    } else if (!is_in_string && (c == ']' || c == '}')) {
      --depth;
    }
  }
  return deepest;
}

// The value of a text that anybody may have written: a discarded one, of no type, where it is no
// JSON, or deeper than kDeepestJson.
template <typename Json = nlohmann::json>
Json ParseJson(std::string_view text) {
  if (NestingOf(text) > kDeepestJson) return Json(Json::value_t::discarded);
  return Json::parse(text.begin(), text.end(), nullptr, /*allow_exceptions=*/false);
}

}  // namespace lockstep
