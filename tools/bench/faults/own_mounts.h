#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "core/base/subprocess.h"

namespace lockstep {

// A small disk in memory over a folder, in a mount namespace of its own: only programs that are
// started Inside see it. All of it goes with this object.
class OwnMounts {
 public:
  // A disk of so many bytes over `folder`, which is there and whose path is absolute. Needs root or
  // user namespaces; PermissionDenied, with what unshare(1) or mount(8) said, where the machine
  // gives neither.
  static absl::StatusOr<OwnMounts> Make(const std::string& folder, int64_t bytes);

  // The words that start a program there, in the present working directory.
  std::vector<std::string> Inside(const std::vector<std::string>& program) const;
  // Runs a line of a shell there, of which $0 is `argument`. An error has its standard error.
  absl::Status Shell(const std::string& line, const std::string& argument) const;
  // How this process reaches a path of theirs.
  std::string Seen(const std::string& path) const;

 private:
  OwnMounts(Subprocess holder, bool is_root) : holder_(std::move(holder)), is_root_(is_root) {}

  Subprocess holder_;  // sleeps in the namespace, and keeps it
  bool is_root_;
};

}  // namespace lockstep
