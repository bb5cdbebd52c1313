#include "tools/experiment/paths.h"

#include <unistd.h>  // access

#include <cerrno>
#include <cstdlib>  // std::getenv, mkdtemp
#include <filesystem>
#include <system_error>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "core/base/file.h"
#include "core/base/status.h"

namespace lockstep {

namespace fs = std::filesystem;

std::string FindOnPath(const std::string& name) {
  const char* path = name.find('/') == name.npos ? std::getenv("PATH") : "";
  for (const absl::string_view folder : absl::StrSplit(path == nullptr ? "/usr/bin" : path, ':')) {
    const fs::path candidate = fs::path(std::string(folder)) / name;
    std::error_code error;
    if (fs::is_regular_file(candidate, error) && access(candidate.c_str(), X_OK) == 0) {
      return candidate.string();
    }
  }
  return "";
}

std::string AbsolutePath(const std::string& path) {
  std::error_code deleted;
  return (fs::current_path(deleted) / path).lexically_normal().string();
}

absl::StatusOr<std::string> OwnProgram() {
  std::error_code error;
  const fs::path path = fs::read_symlink("/proc/self/exe", error);
  if (!error) return path.string();
  return absl::ErrnoToStatus(error.value(), "cannot tell which program this is");
}

absl::Status WriteOutput(const std::string& path, const std::string& contents) {
  LS_RETURN_IF_ERROR(MakeDirectories(fs::path(path).parent_path().string()));
  return WriteFileAtomically(path, contents);
}

absl::StatusOr<TemporaryDirectory> TemporaryDirectory::Create() {
  const char* base = std::getenv("TEST_TMPDIR");
  std::string path = absl::StrCat(base != nullptr ? base : "/tmp", "/lockstep-XXXXXX");
  if (mkdtemp(path.data()) == nullptr) {
    return absl::ErrnoToStatus(errno, absl::StrCat("cannot make the directory ", path));
  }
  return TemporaryDirectory(path);
}

TemporaryDirectory::TemporaryDirectory(TemporaryDirectory&& other) noexcept
    : path_(std::exchange(other.path_, "")) {}

TemporaryDirectory::~TemporaryDirectory() {
  if (path_.empty()) return;
  std::error_code ignored;  // what stays is in a folder for temporary files
  fs::remove_all(path_, ignored);
}

}  // namespace lockstep
