#pragma once

#include <map>
#include <string>

#include "absl/status/statusor.h"
#include "core/run/config_listing.h"

namespace lockstep {

// The section "All keys" of docs/configuration.md: a table of Markdown for each table of the
// configuration, with each key's default, what it may be, and its meaning. Ends with an empty line.
std::string KeysSection(const std::map<std::string, ListedTable>& tables);

// `page` with this section in place of the one that it has, from its heading to the next one of the
// same level. InvalidArgument if the page has none.
absl::StatusOr<std::string> WithKeysSection(const std::string& page, const std::string& section);

}  // namespace lockstep
