// TOML text to configuration values and back. Used by Config; everybody else uses Config.

#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "core/config/config_value.h"

namespace lockstep {

// Parses a TOML document into a table. `source_name` stands in origins and messages. Malformed text
// gives an InvalidArgument error with source name, line, column and what is wrong. Dates and times,
// for which no configuration has a use, are refused.
absl::StatusOr<ConfigValue> ParseToml(const std::string& text, const std::string& source_name);

// Writes a table as a TOML document: keys sorted, one `[section]` a table, numbers in the shortest
// form that reads back to the same bits. Tables with equal contents give equal text.
std::string FormatToml(const ConfigValue::Table& table);

// Writes one value as it stands to the right of a `=` sign; a table is written inline.
std::string FormatTomlValue(const ConfigValue& value);

// Writes a key as TOML demands it: bare if possible, else in quotes.
std::string FormatTomlKey(const std::string& key);

}  // namespace lockstep
