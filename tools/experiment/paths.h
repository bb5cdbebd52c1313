// Where programs find other programs, and room for files.

#pragma once

#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace lockstep {

// The program of that name on PATH, which is /usr/bin where there is none, or at that path if the
// name has a slash; empty if there is none.
std::string FindOnPath(const std::string& name);

// `path` from the directory that this program runs in, which under `bazel run` is not the user's;
// an absolute one as it is. Without "." and "..". A relative path where that directory is gone.
std::string AbsolutePath(const std::string& path);

// The path of this very program.
absl::StatusOr<std::string> OwnProgram();

// Writes a file that a user asked for, and makes its folder where that is missing.
absl::Status WriteOutput(const std::string& path, const std::string& contents);

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
