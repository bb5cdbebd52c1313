#include "core/config/config_toml.h"

#include <algorithm>  // std::all_of, std::count, std::min
#include <array>
#include <charconv>  // std::to_chars
#include <cstddef>
#include <cstdint>
#include <string_view>
#include <utility>
#include <variant>  // std::visit

#include "absl/status/status.h"
#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "core/base/status.h"
#include "toml++/toml.h"

namespace lockstep {
namespace {

std::string Origin(const std::string& source_name, const toml::source_region& region) {
  return absl::StrCat(source_name, ":", uint32_t{region.begin.line});
}

absl::StatusOr<ConfigValue> FromNode(const toml::node& node, const std::string& source_name) {
  ConfigValue value;
  value.origin = Origin(source_name, node.source());
  if (const toml::table* table = node.as_table()) {
    ConfigValue::Table members;
    for (const auto& [key, member] : *table) {
      LS_ASSIGN_OR_RETURN(ConfigValue converted, FromNode(member, source_name));
      // A reader looks for the line of the key; tables made by dotted keys have no line of their
      // own.
      converted.origin = Origin(source_name, key.source());
      members.emplace(std::string(key.str()), std::move(converted));
    }
    value.data = std::move(members);
  } else if (const toml::array* array = node.as_array()) {
    ConfigValue::List elements;
    for (const toml::node& element : *array) {
      LS_ASSIGN_OR_RETURN(ConfigValue converted, FromNode(element, source_name));
      elements.push_back(std::move(converted));
    }
    value.data = std::move(elements);
  } else if (const auto* text = node.as_string()) {
    value.data = text->get();
  } else if (const auto* number = node.as_floating_point()) {
    value.data = number->get();
  } else if (const auto* integer = node.as_integer()) {
    value.data = integer->get();
  } else if (const auto* boolean = node.as_boolean()) {
    value.data = boolean->get();
  } else {
    return InvalidArgument(value.origin,
                           ": dates and times have no use here; write a string in quotes");
  }
  return value;
}

std::string FormatNumber(double number) {
  std::array<char, 32> buffer;  // the longest double takes 24
  const auto end = std::to_chars(buffer.data(), buffer.data() + buffer.size(), number).ptr;
  std::string text(buffer.data(), end);
  // "3" would read back as an integer.
  if (text.find_first_not_of("-0123456789") == std::string::npos) text += ".0";
  return text;
}

std::string Quote(const std::string& text) {
  std::string quoted = "\"";
  for (const char c : text) {
    const auto code = static_cast<unsigned char>(c);
    if (c == '"' || c == '\\') {
      quoted += '\\';
      quoted += c;
    } else if (code < 0x20 || code == 0x7f) {
      absl::StrAppendFormat(&quoted, "\\u%04X", code);
    } else {
      quoted += c;
    }
  }
  return quoted + "\"";
}

// Appends the plain keys of `table`, then its sub-tables; `path` is the section they stand in.
void AppendSection(const ConfigValue::Table& table, const std::string& path, std::string* out) {
  std::string lines;
  for (const auto& [key, value] : table) {
    if (value.As<ConfigValue::Table>() != nullptr) continue;
    absl::StrAppend(&lines, FormatTomlKey(key), " = ", FormatTomlValue(value), "\n");
  }
  // A table that only holds other tables needs no line: their headers name it.
  const bool needs_header = !path.empty() && (!lines.empty() || table.empty());
  if (needs_header) absl::StrAppend(out, out->empty() ? "" : "\n", "[", path, "]\n");
  out->append(lines);
  for (const auto& [key, value] : table) {
    const auto* child = value.As<ConfigValue::Table>();
    if (child == nullptr) continue;
    AppendSection(*child, absl::StrCat(path, path.empty() ? "" : ".", FormatTomlKey(key)), out);
  }
}

struct ValueFormatter {
  std::string operator()(const ConfigValue::Table& table) const {
    const auto append_member = [](std::string* out, const auto& member) {
      absl::StrAppend(out, FormatTomlKey(member.first), " = ", FormatTomlValue(member.second));
    };
    return absl::StrCat("{", absl::StrJoin(table, ", ", append_member), "}");
  }
  std::string operator()(const ConfigValue::List& list) const {
    const auto append_element = [](std::string* out, const ConfigValue& element) {
      absl::StrAppend(out, FormatTomlValue(element));
    };
    return absl::StrCat("[", absl::StrJoin(list, ", ", append_element), "]");
  }
  std::string operator()(const std::string& text) const { return Quote(text); }
  std::string operator()(double number) const { return FormatNumber(number); }
  std::string operator()(int64_t integer) const { return absl::StrCat(integer); }
  std::string operator()(bool boolean) const { return boolean ? "true" : "false"; }
};

// Dots that a key may have: "a.b.c" has two. The library, and whoever walks through what it
// returns, goes down one level of the stack for each.
constexpr int kMostDots = 32;

// Where a string that opens at `at` ends: behind its closing quotes, or at the end of the text.
size_t EndOfString(const std::string& text, size_t at) {
  const char quote = text[at];
  const bool is_long = text.compare(at, 3, std::string(3, quote)) == 0;
  const std::string closing(is_long ? 3 : 1, quote);
  for (size_t i = at + closing.size(); i < text.size(); ++i) {
    if (text[i] == '\\' && quote == '"') {
      ++i;
    } else if (text.compare(i, closing.size(), closing) == 0) {
      return i + closing.size();
    } else if (text[i] == '\n' && !is_long) {
      return i;  // malformed, as the parser will say
    }
  }
  return text.size();
}

// Refuses what nests too deep in a text that nobody has parsed yet. The library limits lists and
// inline tables itself.
absl::Status CheckDepth(const std::string& text, const std::string& source_name) {
  int line = 1, dots = 0;
  for (size_t at = 0; at < text.size();) {
    const char c = text[at];
    if (c == '"' || c == '\'') {
      const size_t end = EndOfString(text, at);
      line += static_cast<int>(std::count(text.begin() + at, text.begin() + end, '\n'));
      at = end;
      continue;
    }
    if (c == '#') {
      at = std::min(text.find('\n', at), text.size());
      continue;
    }
    if (c == '.' && ++dots > kMostDots) {
      return InvalidArgument(source_name, ":", line, ": a key has more than ", kMostDots,
                             " dots; no table lies so deep");
    }
    if (std::string_view("\n=[]{},").find(c) != std::string_view::npos) dots = 0;
    if (c == '\n') ++line;
    ++at;
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<ConfigValue> ParseToml(const std::string& text, const std::string& source_name) {
  LS_RETURN_IF_ERROR(CheckDepth(text, source_name));
  try {
    return FromNode(toml::parse(text, source_name), source_name);
  } catch (const toml::parse_error& error) {
    const toml::source_position& at = error.source().begin;
    return InvalidArgument(source_name, ":", uint32_t{at.line}, ": malformed TOML at column ",
                           uint32_t{at.column}, ": ", std::string(error.description()));
  }
}

std::string FormatToml(const ConfigValue::Table& table) {
  std::string out;
  AppendSection(table, "", &out);
  return out;
}

std::string FormatTomlValue(const ConfigValue& value) {
  return std::visit(ValueFormatter(), value.data);
}

std::string FormatTomlKey(const std::string& key) {
  const bool bare = !key.empty() && std::ranges::all_of(key, [](char c) {
    return absl::ascii_isalnum(static_cast<unsigned char>(c)) || c == '_' || c == '-';
  });
  return bare ? key : Quote(key);
}

}  // namespace lockstep
