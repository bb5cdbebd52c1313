#include "tools/experiment/paths.h"

#include <cerrno>
#include <cstdlib>  // std::getenv, mkdtemp
#include <filesystem>
#include <system_error>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"

namespace lockstep {
namespace {

namespace fs = std::filesystem;

}  // namespace

absl::StatusOr<std::string> WorkspacePath(const std::string& path) {
  const char* workspace = std::getenv("BUILD_WORKSPACE_DIRECTORY");
  if (workspace == nullptr) {
    return absl::FailedPreconditionError(absl::StrCat("cannot tell where the source tree with ",
                                                      path,
                                                      " is; start this program with ./bazelw run"));
  }
  return (fs::path(workspace) / path).string();
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
