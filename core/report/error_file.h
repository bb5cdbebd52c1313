#pragma once

#include <filesystem>
#include <string>
#include <system_error>

namespace lockstep {

// Why a run failed, in its directory: for those who look at it later, or beside others.
inline constexpr char kErrorFile[] = "error.txt";

// Takes away what an earlier run has left in the run directory `out`.
inline void RemoveError(const std::string& out) {
  std::error_code ignored;
  std::filesystem::remove(out + "/" + kErrorFile, ignored);
}

}  // namespace lockstep
