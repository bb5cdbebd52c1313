// Strict reading of one table of a configuration: types, bounds, and no key that nobody knows.
//
//   ConfigReader reader(config.Table("optimizer"));
//   reader.RequireChoice("kind", &kind, {{"sgd", Kind::kSgd}, {"adamw", Kind::kAdamW}});
//   reader.Read("learning_rate", &learning_rate, {.greater_than = 0});  // keeps the default
//   reader.Read("betas", &betas, {.at_least = 0, .less_than = 1});
//   LS_RETURN_IF_ERROR(reader.Finish());
//
// The whole configuration is checked the same way: a reader on config.Table("") is asked for each
// table that the program knows, and its Finish refuses the others.

#pragma once

#include <cstddef>
#include <limits>
#include <optional>
#include <string>
#include <type_traits>
#include <unordered_set>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "core/config/config.h"
#include "core/config/config_value.h"

namespace lockstep {

// What a number must satisfy beyond its type; all that is given must hold. Numbers are finite in
// any case. In a list it holds for each element; for strings and booleans it means nothing.
struct NumberBounds {
  double at_least = -std::numeric_limits<double>::infinity();
  double greater_than = -std::numeric_limits<double>::infinity();
  double at_most = std::numeric_limits<double>::infinity();
  double less_than = std::numeric_limits<double>::infinity();
};

// Problems are gathered, and Finish returns them all in one status, one line each: a line says
// where (file and line), which key, what it is, and what is expected. Values of keys with a problem
// stay as they were.
class ConfigReader {
 public:
  // Reads `table`, which must stay alive. An absent table reads like an empty one; a value that is
  // no table is a problem for Finish.
  explicit ConfigReader(const ConfigTable& table);

  // Stores the value of `key` if it is there; leaves `*value`, the default, if not. T is bool, int,
  // int64_t, uint64_t, float, double, std::string, a std::vector of int64_t, double or std::string,
  // or a std::variant of bool and int64_t, or of std::string and a list of int64_t. A whole number
  // serves as a double; nothing else is converted.
  template <typename T>
  void Read(const std::string& key, T* value, const NumberBounds& bounds = {}) {
    ReadValue(key, Presence::kOptional, value, bounds);
  }

  // Read for a key that must be there.
  template <typename T>
  void Require(const std::string& key, T* value, const NumberBounds& bounds = {}) {
    ReadValue(key, Presence::kRequired, value, bounds);
  }

  // Stores the enumerator whose name the string at `key` spells; keeps the default if there is
  // none. Another name is a problem that suggests one.
  template <typename Enum>
  void ReadChoice(const std::string& key, Enum* value,
                  const std::vector<std::pair<std::string, Enum>>& choices) {
    StoreChoice(key, Presence::kOptional, value, choices);
  }

  // ReadChoice for a key that must be there.
  template <typename Enum>
  void RequireChoice(const std::string& key, Enum* value,
                     const std::vector<std::pair<std::string, Enum>>& choices) {
    StoreChoice(key, Presence::kRequired, value, choices);
  }

  // The sub-table at `key`, for a reader of its own; its key counts as known here.
  ConfigTable Table(const std::string& key);

  // Whether `key` is there. Does not make it known.
  bool Has(const std::string& key) const;
  // Whether a user has given it, and not only the preset.
  bool IsGiven(const std::string& key) const;

  // The keys that are there, sorted: for tables whose keys are data, such as layer-name patterns.
  std::vector<std::string> Keys() const;

  // Adds a problem of the caller's own about `key`, e.g. "must divide model.width".
  void AddProblem(const std::string& key, const std::string& problem);

  // OK, or an InvalidArgument error with all problems, among them each key that nobody asked for
  // and what may have been meant (key_suggestions.h). Where the choice `kind` is missing or wrong,
  // nobody can say which keys the table has, and no key is called unknown.
  absl::Status Finish();

 private:
  enum class Presence { kOptional, kRequired };

  template <typename T>
  void ReadValue(const std::string& key, Presence presence, T* value, const NumberBounds& bounds);

  template <typename Enum>
  void StoreChoice(const std::string& key, Presence presence, Enum* value,
                   const std::vector<std::pair<std::string, Enum>>& choices) {
    std::vector<std::string> names;
    std::string by_default;
    for (const auto& [name, enumerator] : choices) {
      names.push_back(name);
      if constexpr (std::is_scalar_v<Enum>) {
        if (enumerator == *value) by_default = name;
      }
    }
    const auto index = FindChoice(key, presence, names, by_default);
    if (index) *value = choices[*index].second;
  }

  // Adds a problem for each key of an unknown table, a member of the whole configuration, that has
  // another name here: another program's table is met by its keys. Returns whether these are all
  // that it has, so that the table itself needs no word; false where `value` is no such table.
  bool ExplainKeysOf(const std::string& key, const ConfigValue& value);

  // Index into `names` of the string at `key`, if it is there and right.
  std::optional<size_t> FindChoice(const std::string& key, Presence presence,
                                   const std::vector<std::string>& names,
                                   const std::string& by_default);

  // Makes `key` known and returns its value, or null; absence may be a problem, whose message shows
  // `example`.
  const ConfigValue* Find(const std::string& key, Presence presence, const std::string& example);
  void Record(const ConfigValue* found, Presence presence, const ConfigValue& by_default,
              RecordedKey noted) const;

  // "optimizer.learning_rate"
  std::string FullKey(const std::string& key) const;

  ConfigTable table_;
  const ConfigValue::Table* members_;  // null if absent, or no table
  bool is_broken_ = false;             // no table, so nothing can be missing from it
  // The choice at "kind", where it was asked for; empty: missing or wrong.
  std::optional<std::string> kind_;
  std::vector<std::string> known_;  // in the order in which they were asked for
  std::unordered_set<std::string> is_known_;
  std::vector<std::string> problems_;
};

}  // namespace lockstep
