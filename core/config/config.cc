#include "core/config/config.h"

#include <algorithm>  // std::ranges::find
#include <cstddef>
#include <cstdint>
#include <map>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_split.h"
#include "core/base/file.h"
#include "core/base/status.h"
#include "core/config/config_toml.h"

namespace lockstep {
namespace {

constexpr char kSetOrigin[] = "--set";

void MergeTable(const ConfigValue::Table& later, ConfigValue::Table* table) {
  for (const auto& [key, value] : later) {
    const auto* later_child = value.As<ConfigValue::Table>();
    const auto existing = table->find(key);
    auto* child = existing == table->end() ? nullptr : existing->second.As<ConfigValue::Table>();
    if (later_child != nullptr && child != nullptr) {
      MergeTable(*later_child, child);
    } else {
      (*table)[key] = value;
    }
  }
}

void SetOrigins(const std::string& origin, bool is_default, ConfigValue* value) {
  value->origin = origin;
  value->is_default = is_default;
  if (auto* table = value->As<ConfigValue::Table>()) {
    for (auto& member : *table) SetOrigins(origin, is_default, &member.second);
  } else if (auto* list = value->As<ConfigValue::List>()) {
    for (ConfigValue& element : *list) SetOrigins(origin, is_default, &element);
  }
}

// The value of a --set as TOML reads it, or else the text itself.
absl::StatusOr<ConfigValue> ParseSetValue(const std::string& assignment, const std::string& text) {
  if (text.empty()) {
    return InvalidArgument(kSetOrigin, " ", assignment,
                           ": the value is missing; write \"\" for an empty string");
  }
  absl::StatusOr<ConfigValue> document = ParseToml("value = " + text, kSetOrigin);
  if (document.ok()) {
    auto& table = *document->As<ConfigValue::Table>();
    if (table.size() == 1) return std::move(table.begin()->second);
  }
  if (std::string("\"'[{").find(text[0]) != std::string::npos) {
    return InvalidArgument(kSetOrigin, " ", assignment,
                           ": the value opens a string, list or table ",
                           "but is not valid TOML; write it like [1, 2] or \"text\"");
  }
  ConfigValue value;
  value.data = text;
  // A run writes its configuration into its folder, and whoever reads that is strict.
  if (!ParseToml("value = " + FormatTomlValue(value), kSetOrigin).ok()) {
    return InvalidArgument(kSetOrigin, " ", assignment.substr(0, assignment.find('=')),
                           ": the value is not UTF-8, as configurations are");
  }
  return value;
}

// Stores the text of the value at each dotted key as one side of a difference. An empty table
// counts as a value.
void Flatten(const ConfigValue::Table& table, const std::string& prefix,
             std::string Config::Difference::*side,
             std::map<std::string, Config::Difference>* differences) {
  for (const auto& [key, value] : table) {
    const std::string path = absl::StrCat(prefix, FormatTomlKey(key));
    const auto* child = value.As<ConfigValue::Table>();
    if (child != nullptr && !child->empty()) {
      Flatten(*child, path + ".", side, differences);
    } else {
      (*differences)[path].*side = FormatTomlValue(value);
    }
  }
}

// The value at a dotted path of bare keys below `root`; null where there is none.
template <typename Value>
Value* Find(Value* root, const std::string& path) {
  Value* value = root;
  for (const std::string& key : std::vector<std::string>(absl::StrSplit(path, '.'))) {
    auto* table = value->template As<ConfigValue::Table>();
    if (table == nullptr) return nullptr;
    const auto member = table->find(key);
    if (member == table->end()) return nullptr;
    value = &member->second;
  }
  return value;
}

const ConfigValue::Table& Members(const ConfigValue& root) {
  return *root.As<ConfigValue::Table>();
}

}  // namespace

absl::StatusOr<Config> Config::FromFile(const std::string& path) {
  absl::StatusOr<std::string> text = ReadFile(path);
  if (!text.ok()) return Annotate(text.status(), "configuration");
  return FromString(*text, path);
}

absl::StatusOr<Config> Config::FromString(const std::string& text, const std::string& source_name) {
  LS_ASSIGN_OR_RETURN(ConfigValue root, ParseToml(text, source_name));
  return Config(std::move(root));
}

void Config::Merge(const Config& later) {
  MergeTable(Members(later.root_), root_.As<ConfigValue::Table>());
}

absl::Status Config::Set(const std::string& assignment) {
  const size_t equals = assignment.find('=');
  const std::string key(absl::StripAsciiWhitespace(assignment.substr(0, equals)));
  // TOML itself reads the key, so that quoted parts work as they do in a file. What begins with #
  // is a comment to it, which leaves no key.
  absl::StatusOr<ConfigValue> layer = ParseToml(key + " = 0", kSetOrigin);
  if (equals == std::string::npos || key.find('\n') != std::string::npos || !layer.ok() ||
      Members(*layer).empty()) {
    return InvalidArgument(kSetOrigin, " ", assignment, ": expected key=value, such as mesh.dp=2");
  }
  const std::string text(absl::StripAsciiWhitespace(assignment.substr(equals + 1)));
  LS_ASSIGN_OR_RETURN(ConfigValue value, ParseSetValue(assignment, text));
  ConfigValue* leaf = &*layer;
  while (auto* table = leaf->As<ConfigValue::Table>()) leaf = &table->begin()->second;
  *leaf = std::move(value);
  SetOrigins(kSetOrigin, /*is_default=*/false, &*layer);
  MergeTable(Members(*layer), root_.As<ConfigValue::Table>());
  return absl::OkStatus();
}

void Config::MarkAsDefaults(const std::string& origin) {
  SetOrigins(origin, /*is_default=*/true, &root_);
}

ConfigTable Config::Table(const std::string& path) const {
  return {.path = path, .value = path.empty() ? &root_ : Find(&root_, path), .record = record_};
}

Config Config::Only(const std::vector<std::string>& keys) const {
  Config part(root_);
  std::erase_if(*part.root_.As<ConfigValue::Table>(), [&keys](const auto& member) {
    return std::ranges::find(keys, member.first) == keys.end();
  });
  return part;
}

Config Config::Without(const std::string& path) const {
  Config rest = *this;
  const size_t dot = path.rfind('.');
  ConfigValue* parent =
      dot == std::string::npos ? &rest.root_ : Find(&rest.root_, path.substr(0, dot));
  auto* table = parent == nullptr ? nullptr : parent->As<ConfigValue::Table>();
  if (table != nullptr) table->erase(path.substr(dot + 1));
  return rest;
}

std::string Config::ToToml() const { return FormatToml(Members(root_)); }

std::string Config::Fingerprint() const {
  uint64_t hash = 0xcbf29ce484222325;
  for (const char c : ToToml()) {
    hash ^= static_cast<unsigned char>(c);
    hash *= 0x100000001b3;
  }
  return absl::StrFormat("%016x", hash);
}

std::vector<Config::Difference> Config::Differences(const Config& other) const {
  std::map<std::string, Difference> differences;
  Flatten(Members(root_), "", &Difference::ours, &differences);
  Flatten(Members(other.root_), "", &Difference::theirs, &differences);
  std::vector<Difference> differing;
  for (auto& [key, difference] : differences) {
    if (difference.ours == difference.theirs) continue;
    difference.key = key;
    differing.push_back(std::move(difference));
  }
  return differing;
}

}  // namespace lockstep
