#include "core/report/error_file.h"

#include <filesystem>
#include <system_error>

#include "absl/strings/str_cat.h"
#include "core/base/file.h"

namespace lockstep {

void WriteError(const std::string& out, const absl::Status& error) {
  if (!MakeDirectories(out).ok()) return;
  WriteFileAtomically(absl::StrCat(out, "/", kErrorFile), absl::StrCat(error.message(), "\n"))
      .IgnoreError();
}

void RemoveError(const std::string& out) {
  std::error_code ignored;
  std::filesystem::remove(absl::StrCat(out, "/", kErrorFile), ignored);
}

}  // namespace lockstep
