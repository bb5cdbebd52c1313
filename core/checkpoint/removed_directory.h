#pragma once

#include <string>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"

namespace lockstep {

// The error of a run whose directory somebody has removed. FailedPrecondition: nothing is left to
// go on from, so nobody tries again, and the directory is not made again.
inline absl::Status DirectoryWasRemoved(const std::string& directory) {
  return absl::FailedPreconditionError(
      absl::StrCat("\"", directory,
                   "\" was removed while the run wrote to it; leave a run's directory alone until "
                   "it ends, and start the run anew"));
}

}  // namespace lockstep
