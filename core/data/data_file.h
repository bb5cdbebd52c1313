#pragma once

#include <string>

#include "absl/status/statusor.h"

namespace lockstep {

// `relative` under the user's data directory; a `relative` that begins with a slash stays as it is.
// An empty directory stands for the current one.
std::string DataPath(const std::string& directory, const std::string& relative);

// The contents of DataPath(directory, relative). Where there is no such file, the NotFound error
// names the path, says by `where_to_get_it` (one sentence) how to come by it, and how to name the
// directory.
absl::StatusOr<std::string> ReadDataFile(const std::string& directory, const std::string& relative,
                                         const std::string& where_to_get_it);

// Closes the message about a missing file: how the user names the data directory.
std::string HowToNameTheDirectory(const std::string& directory);

}  // namespace lockstep
