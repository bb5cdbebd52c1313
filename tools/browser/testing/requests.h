// What a page asks of others.

#pragma once

#include <set>
#include <string>

#include "absl/status/statusor.h"

namespace lockstep {

// Addresses that Chromium asks for while it has the page open and runs its scripts, but for the
// page's own file and data that stand in it.
absl::StatusOr<std::set<std::string>> RequestsOf(const std::string& html);

}  // namespace lockstep
