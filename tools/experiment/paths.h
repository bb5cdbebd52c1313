// Where programs that Bazel starts in a folder of their own find the source tree, and room for
// files.

#pragma once

#include <string>
#include <utility>

#include "absl/status/statusor.h"

namespace lockstep {

// `path` in the source tree from which `bazel run` was called. FailedPrecondition outside of it.
absl::StatusOr<std::string> WorkspacePath(const std::string& path);

// A new empty directory, removed with everything in it at the end. Under TEST_TMPDIR in tests.
class TemporaryDirectory {
 public:
  static absl::StatusOr<TemporaryDirectory> Create();

  TemporaryDirectory(TemporaryDirectory&& other) noexcept;
  TemporaryDirectory& operator=(TemporaryDirectory&&) = delete;
  TemporaryDirectory(const TemporaryDirectory&) = delete;
  TemporaryDirectory& operator=(const TemporaryDirectory&) = delete;
  ~TemporaryDirectory();

  const std::string& path() const { return path_; }

 private:
  explicit TemporaryDirectory(std::string path) : path_(std::move(path)) {}

  std::string path_;  // empty: moved from
};

}  // namespace lockstep
