// Why a run failed, in its directory: for those who look at it later, or beside others.

#pragma once

#include <string>

#include "absl/status/status.h"

namespace lockstep {

inline constexpr char kErrorFile[] = "error.txt";

// Leaves the error's message in the run directory `out`, which is made if it is not there. What
// cannot be written is let be: the error itself has been told, and is worth more than another.
void WriteError(const std::string& out, const absl::Status& error);

// Takes away what an earlier run has left.
void RemoveError(const std::string& out);

}  // namespace lockstep
