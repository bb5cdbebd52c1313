#pragma once

#include <string>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "core/base/file.h"

namespace lockstep {

// Why a run failed, in its directory: for those who look at it later, or beside others.
inline constexpr char kErrorFile[] = "error.txt";

// Leaves the message of an error in the run directory `out`. What cannot be written is let be: the
// error itself has been told, and is worth more.
inline void LeaveError(const std::string& out, const absl::Status& error) {
  WriteFileAtomically(absl::StrCat(out, "/", kErrorFile), absl::StrCat(error.message(), "\n"))
      .IgnoreError();
}

// Takes away what an earlier run has left in the run directory `out`.
inline void RemoveError(const std::string& out) { RemoveTree(out + "/" + kErrorFile); }

}  // namespace lockstep
