#include "core/config/config_reader.h"

#include <algorithm>  // std::ranges::find
#include <cmath>      // std::isfinite
#include <cstdint>
#include <variant>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "core/config/config_toml.h"
#include "core/config/key_meanings.h"
#include "core/config/key_suggestions.h"
#include "glog/logging.h"

namespace lockstep {
namespace {

template <typename T>
constexpr bool kIsVariant = false;
template <typename... Types>
constexpr bool kIsVariant<std::variant<Types...>> = true;

// How messages speak of a type.
struct TypeWords {
  std::string expected;
  std::string example;
};

template <typename T>
TypeWords WordsFor() {
  if constexpr (std::is_same_v<T, bool>) {
    return {"true or false", "true"};
  } else if constexpr (std::is_integral_v<T>) {
    return {"a whole number", "4"};
  } else if constexpr (std::is_floating_point_v<T>) {
    return {"a number", "0.5"};
  } else if constexpr (std::is_same_v<T, std::string>) {
    return {"a string", "\"text\""};
  } else if constexpr (std::is_same_v<T, std::variant<bool, int64_t>>) {
    return {"true, false or a whole number", "true"};
  } else if constexpr (std::is_same_v<T, std::variant<std::string, std::vector<int64_t>>>) {
    return {"a string or a list of whole numbers", "[2, 4]"};
  } else if constexpr (std::is_same_v<T, std::vector<int64_t>>) {
    return {"a list of whole numbers", "[2, 4]"};
  } else if constexpr (std::is_same_v<T, std::vector<double>>) {
    return {"a list of numbers", "[0.9, 0.99]"};
  } else {
    static_assert(std::is_same_v<T, std::vector<std::string>>);
    return {"a list of strings", "[\"a\", \"b\"]"};
  }
}

// A default, as a configuration would say it.
template <typename T>
ConfigValue ToValue(const T& value) {
  ConfigValue result;
  if constexpr (kIsVariant<T>) {
    return std::visit([](const auto& held) { return ToValue(held); }, value);
  } else if constexpr (std::is_same_v<T, bool> || std::is_same_v<T, std::string>) {
    result.data = value;
  } else if constexpr (std::is_integral_v<T>) {
    result.data = static_cast<int64_t>(value);
  } else if constexpr (std::is_floating_point_v<T>) {
    // The shortest text that reads back to the same float.
    double shortest = value;
    if (std::is_same_v<T, float>) CHECK(absl::SimpleAtod(absl::StrCat(value), &shortest));
    result.data = shortest;
  } else {
    ConfigValue::List elements;
    for (const auto& element : value) elements.push_back(ToValue(element));
    result.data = std::move(elements);
  }
  return result;
}

std::string Describe(const ConfigValue& value) {
  if (value.As<ConfigValue::Table>() != nullptr) return "a table";
  std::string text = FormatTomlValue(value);
  if (value.As<ConfigValue::List>() != nullptr) return absl::StrCat("the list ", text);
  if (value.As<std::string>() != nullptr) return absl::StrCat("the string ", text);
  if (value.As<bool>() != nullptr) return text;
  return absl::StrCat("the number ", text);
}

// Which rule `number` breaks as a T; empty: none. The type's own limits count as bounds.
template <typename T, typename Number>
std::string BrokenRule(Number number, const NumberBounds& bounds) {
  const auto wide = static_cast<double>(number);
  if (!std::isfinite(wide)) return "must be finite";
  const bool is_inside = wide >= bounds.at_least && wide > bounds.greater_than &&
                         wide <= bounds.at_most && wide < bounds.less_than;
  if (!is_inside) {
    std::vector<std::string> rules;
    for (const auto& [bound, words] : {std::pair(bounds.at_least, "at least "),
                                       {bounds.greater_than, "greater than "},
                                       {bounds.at_most, "at most "},
                                       {bounds.less_than, "less than "}}) {
      if (std::isfinite(bound)) rules.push_back(absl::StrCat(words, bound));
    }
    return absl::StrCat("must be ", absl::StrJoin(rules, " and "));
  }
  if constexpr (std::is_floating_point_v<T>) {
    const bool fits = std::abs(wide) <= static_cast<double>(std::numeric_limits<T>::max());
    return fits ? "" : "is too large for single precision";
  } else {
    if (std::in_range<T>(number)) return "";
    return absl::StrCat("must be at least ", std::numeric_limits<T>::min(), " and at most ",
                        std::numeric_limits<T>::max());
  }
}

// Result of reading one value: it is there, or has another type, or breaks a rule.
enum class Outcome { kGood, kWrongType, kBreaksRule };

template <typename T>
Outcome Convert(const ConfigValue& value, const NumberBounds& bounds, T* out, std::string* rule);

// Stores `value` as alternative number `kIndex` of a variant.
template <size_t kIndex, typename T>
Outcome ConvertTo(const ConfigValue& value, const NumberBounds& bounds, T* out, std::string* rule) {
  std::variant_alternative_t<kIndex, T> converted{};
  const Outcome outcome = Convert(value, bounds, &converted, rule);
  if (outcome == Outcome::kGood) *out = std::move(converted);
  return outcome;
}

// Stores `value` as a T; `*rule` says which rule it broke.
template <typename T>
Outcome Convert(const ConfigValue& value, const NumberBounds& bounds, T* out, std::string* rule) {
  if constexpr (std::is_same_v<T, bool> || std::is_same_v<T, std::string>) {
    const T* found = value.As<T>();
    if (found == nullptr) return Outcome::kWrongType;
    *out = *found;
  } else if constexpr (kIsVariant<T>) {
    static_assert(std::variant_size_v<T> == 2);
    const Outcome outcome = ConvertTo<0>(value, bounds, out, rule);
    return outcome == Outcome::kWrongType ? ConvertTo<1>(value, bounds, out, rule) : outcome;
  } else if constexpr (std::is_arithmetic_v<T>) {
    const auto store = [&](auto number) {
      *rule = BrokenRule<T>(number, bounds);
      if (!rule->empty()) return Outcome::kBreaksRule;
      *out = static_cast<T>(number);
      return Outcome::kGood;
    };
    if (const auto* integer = value.As<int64_t>()) return store(*integer);
    if constexpr (std::is_floating_point_v<T>) {
      if (const auto* number = value.As<double>()) return store(*number);
    }
    return Outcome::kWrongType;
  } else {
    const auto* list = value.As<ConfigValue::List>();
    if (list == nullptr) return Outcome::kWrongType;
    T elements;
    for (const ConfigValue& element : *list) {
      const Outcome outcome = Convert(element, bounds, &elements.emplace_back(), rule);
      if (outcome != Outcome::kGood) return outcome;
    }
    *out = std::move(elements);
  }
  return Outcome::kGood;
}

}  // namespace

ConfigReader::ConfigReader(const ConfigTable& table) : table_(table), members_(nullptr) {
  if (table.value == nullptr) return;
  members_ = table.value->As<ConfigValue::Table>();
  if (members_ != nullptr) return;
  is_broken_ = true;
  problems_.push_back(absl::StrCat(table.value->origin, ": ", table.path, " is ",
                                   Describe(*table.value), ", expected a table, such as [",
                                   table.path, "] and its keys below it"));
}

template <typename T>
void ConfigReader::ReadValue(const std::string& key, Presence presence, T* value,
                             const NumberBounds& bounds) {
  const TypeWords words = WordsFor<T>();
  const ConfigValue* found = Find(key, presence, words.example);
  if (table_.record != nullptr) {
    Record(found, presence, ToValue(*value), {.name = key, .expected = words.expected});
  }
  if (found == nullptr) return;
  T converted{};
  std::string rule;
  switch (Convert(*found, bounds, &converted, &rule)) {
    case Outcome::kGood:
      *value = std::move(converted);
      break;
    case Outcome::kWrongType:
      AddProblem(key, absl::StrCat("is ", Describe(*found), ", expected ", words.expected,
                                   ", such as ", key, " = ", words.example));
      break;
    case Outcome::kBreaksRule:
      AddProblem(key, absl::StrCat("is ", FormatTomlValue(*found), ": it ", rule));
      break;
  }
}

std::optional<size_t> ConfigReader::FindChoice(const std::string& key, Presence presence,
                                               const std::vector<std::string>& names,
                                               const std::string& by_default) {
  const std::string known = absl::StrCat("\"", absl::StrJoin(names, "\", \""), "\"");
  const ConfigValue* found = Find(key, presence, absl::StrCat("\"", names.front(), "\""));
  if (table_.record != nullptr) {
    Record(found, presence, ToValue(by_default),
           {.name = key, .expected = "one of", .choices = names});
  }
  if (key == "kind") {
    const std::string* kind = presence == Presence::kOptional ? &by_default : nullptr;
    if (found != nullptr) kind = found->As<std::string>();
    kind_ = kind != nullptr && std::ranges::find(names, *kind) != names.end() ? *kind : "";
  }
  if (found == nullptr) return std::nullopt;
  const auto* name = found->As<std::string>();
  if (name == nullptr) {
    AddProblem(key, absl::StrCat("is ", Describe(*found), ", expected one of ", known));
    return std::nullopt;
  }
  const auto position = std::ranges::find(names, *name);
  if (position == names.end()) {
    const std::string suggestion = SuggestChoice(FullKey(key), *name, names);
    AddProblem(key, absl::StrCat("is \"", *name, "\"; ", suggestion,
                                 suggestion.empty() ? "known are " : "Known are ", known));
    return std::nullopt;
  }
  return static_cast<size_t>(position - names.begin());
}

void ConfigReader::Record(const ConfigValue* found, Presence presence,
                          const ConfigValue& by_default, RecordedKey noted) const {
  if (presence == Presence::kOptional) noted.by_default = FormatTomlValue(by_default);
  noted.value = found == nullptr ? noted.by_default : FormatTomlValue(*found);
  if (found != nullptr) noted.source = found->origin;
  std::vector<RecordedKey>& keys = (*table_.record)[table_.path];
  const auto earlier = std::ranges::find(keys, noted.name, &RecordedKey::name);
  if (earlier == keys.end()) {
    keys.push_back(std::move(noted));
  } else {
    *earlier = std::move(noted);
  }
}

ConfigTable ConfigReader::Table(const std::string& key) {
  return {
      .path = FullKey(key), .value = Find(key, Presence::kOptional, ""), .record = table_.record};
}

bool ConfigReader::Has(const std::string& key) const {
  return members_ != nullptr && members_->contains(key);
}

bool ConfigReader::IsGiven(const std::string& key) const {
  return Has(key) && !members_->find(key)->second.is_default;
}

std::vector<std::string> ConfigReader::Keys() const {
  std::vector<std::string> keys;
  if (members_ == nullptr) return keys;
  for (const auto& member : *members_) keys.push_back(member.first);
  return keys;
}

void ConfigReader::AddProblem(const std::string& key, const std::string& problem) {
  const std::string origin = Has(key) ? members_->find(key)->second.origin + ": " : "";
  problems_.push_back(absl::StrCat(origin, FullKey(key), " ", problem));
}

absl::Status ConfigReader::Finish() {
  for (const std::string& key : Keys()) {
    if (kind_ == "") break;  // these may be keys of the kind that was meant
    if (is_known_.contains(key)) continue;
    const ConfigValue& value = members_->find(key)->second;
    if (ExplainKeysOf(key, value)) continue;
    // Otherwise a user who knows the key from another kind would not see why it is refused.
    const bool other_kind_has_it = kind_.has_value() && !MeaningOf(FullKey(key)).empty();
    problems_.push_back(absl::StrCat(
        value.origin, ": unknown key ", FullKey(key),
        other_kind_has_it ? absl::StrCat(" with ", FullKey("kind"), " = \"", *kind_, "\"") : "",
        SuggestKey(table_.path, key, known_)));
  }
  if (problems_.empty()) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrJoin(problems_, "\n"));
}

bool ConfigReader::ExplainKeysOf(const std::string& key, const ConfigValue& value) {
  const auto* table = value.As<ConfigValue::Table>();
  if (table == nullptr || !table_.path.empty()) return false;
  size_t explained = 0;
  for (const auto& [name, member] : *table) {
    const std::string suggestion = SuggestKeyOfUnknownTable(key, name, known_);
    if (suggestion.empty()) continue;
    problems_.push_back(absl::StrCat(member.origin, ": unknown key ", FullKey(key), ".",
                                     FormatTomlKey(name), suggestion));
    ++explained;
  }
  return explained > 0 && explained == table->size();
}

const ConfigValue* ConfigReader::Find(const std::string& key, Presence presence,
                                      const std::string& example) {
  if (is_known_.insert(key).second) known_.push_back(key);
  if (Has(key)) return &members_->find(key)->second;
  if (presence == Presence::kRequired && !is_broken_) {
    AddProblem(key, absl::StrCat("is missing; set it in a configuration file, or with --set ",
                                 FullKey(key), "=", example));
  }
  return nullptr;
}

std::string ConfigReader::FullKey(const std::string& key) const {
  return absl::StrCat(table_.path, table_.path.empty() ? "" : ".", FormatTomlKey(key));
}

// The types that may be read.
#define LS_INSTANTIATE(...)                                                         \
  template void ConfigReader::ReadValue(const std::string&, Presence, __VA_ARGS__*, \
                                        const NumberBounds&)
LS_INSTANTIATE(bool);
LS_INSTANTIATE(int);
LS_INSTANTIATE(int64_t);
LS_INSTANTIATE(uint64_t);
LS_INSTANTIATE(float);
LS_INSTANTIATE(double);
LS_INSTANTIATE(std::string);
LS_INSTANTIATE(std::variant<bool, int64_t>);
LS_INSTANTIATE(std::variant<std::string, std::vector<int64_t>>);
LS_INSTANTIATE(std::vector<int64_t>);
LS_INSTANTIATE(std::vector<double>);
LS_INSTANTIATE(std::vector<std::string>);
#undef LS_INSTANTIATE

}  // namespace lockstep
