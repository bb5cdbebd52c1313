#include "core/config/config.h"

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
    return absl::InvalidArgumentError(absl::StrCat(
        kSetOrigin, " ", assignment, ": the value is missing; write \"\" for an empty string"));
  }
  absl::StatusOr<ConfigValue> document = ParseToml("value = " + text, kSetOrigin);
  if (document.ok()) {
    auto& table = *document->As<ConfigValue::Table>();
    if (table.size() == 1) return std::move(table.begin()->second);
  }
  if (std::string("\"'[{").find(text[0]) != std::string::npos) {
    return absl::InvalidArgumentError(
        absl::StrCat(kSetOrigin, " ", assignment, ": the value opens a string, list or table ",
                     "but is not valid TOML; write it like [1, 2] or \"text\""));
  }
  ConfigValue value;
  value.data = text;
  return value;
}

// Maps each dotted key to the text of its value. An empty table counts as a value.
void Flatten(const ConfigValue::Table& table, const std::string& prefix,
             std::map<std::string, std::string>* values) {
  for (const auto& [key, value] : table) {
    const std::string path = absl::StrCat(prefix, FormatTomlKey(key));
    const auto* child = value.As<ConfigValue::Table>();
    if (child != nullptr && !child->empty()) {
      Flatten(*child, path + ".", values);
    } else {
      values->emplace(path, FormatTomlValue(value));
    }
  }
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
  // TOML itself reads the key, so that quoted parts work as they do in a file.
  absl::StatusOr<ConfigValue> layer = ParseToml(key + " = 0", kSetOrigin);
  if (equals == std::string::npos || !layer.ok() || key.find('\n') != std::string::npos) {
    return absl::InvalidArgumentError(
        absl::StrCat(kSetOrigin, " ", assignment, ": expected key=value, such as mesh.dp=2"));
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
  ConfigTable result{.path = path, .value = &root_, .record = record_};
  if (path.empty()) return result;
  for (const std::string& key : std::vector<std::string>(absl::StrSplit(path, '.'))) {
    const auto* table = result.value->As<ConfigValue::Table>();
    const auto member = table == nullptr ? ConfigValue::Table::const_iterator() : table->find(key);
    if (table == nullptr || member == table->end()) {
      result.value = nullptr;
      return result;
    }
    result.value = &member->second;
  }
  return result;
}

Config Config::Only(const std::vector<std::string>& keys) const {
  ConfigValue::Table kept;
  for (const std::string& key : keys) {
    const auto member = Members(root_).find(key);
    if (member != Members(root_).end()) kept.insert(*member);
  }
  ConfigValue root;
  root.data = std::move(kept);
  return Config(std::move(root));
}

Config Config::Without(const std::string& path) const {
  Config rest = *this;
  ConfigValue::Table* table = rest.root_.As<ConfigValue::Table>();
  std::vector<std::string> keys = absl::StrSplit(path, '.');
  const std::string last = std::move(keys.back());
  keys.pop_back();
  for (const std::string& key : keys) {
    const auto member = table->find(key);
    table = member == table->end() ? nullptr : member->second.As<ConfigValue::Table>();
    if (table == nullptr) return rest;
  }
  table->erase(last);
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
  std::map<std::string, std::string> ours;
  std::map<std::string, std::string> theirs;
  Flatten(Members(root_), "", &ours);
  Flatten(Members(other.root_), "", &theirs);
  std::map<std::string, Difference> differences;
  for (const auto& [key, value] : ours) differences[key].ours = value;
  for (const auto& [key, value] : theirs) differences[key].theirs = value;
  std::vector<Difference> differing;
  for (auto& [key, difference] : differences) {
    if (difference.ours == difference.theirs) continue;
    difference.key = key;
    differing.push_back(std::move(difference));
  }
  return differing;
}

}  // namespace lockstep
