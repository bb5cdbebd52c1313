#include "core/data/data_file.h"

#include <utility>  // std::move

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "core/base/file.h"

namespace lockstep {

std::string DataPath(const std::string& directory, const std::string& relative) {
  if (directory.empty() || (!relative.empty() && relative[0] == '/')) return relative;
  return absl::StrCat(directory, directory.back() == '/' ? "" : "/", relative);
}

std::string HowToNameTheDirectory(const std::string& directory) {
  return absl::StrCat(
      "The data directory is ",
      directory.empty() ? std::string("not set") : absl::StrCat("\"", directory, "\""),
      "; name another with --data DIR or in the variable LOCKSTEP_DATA.");
}

absl::StatusOr<std::string> ReadDataFile(const std::string& directory, const std::string& relative,
                                         const std::string& where_to_get_it) {
  absl::StatusOr<std::string> contents = ReadFile(DataPath(directory, relative));
  if (absl::IsNotFound(contents.status())) {
    return absl::NotFoundError(absl::StrCat(contents.status().message(), ". ", where_to_get_it, " ",
                                            HowToNameTheDirectory(directory)));
  }
  return contents;
}

}  // namespace lockstep
