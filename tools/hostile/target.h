#pragma once

#include <functional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "tools/hostile/mutation.h"

namespace lockstep {

// A part of the programs that reads what comes from outside.
struct HostileTarget {
  std::string name;
  // Makes, in an empty folder, what all tries start from. Once a process.
  std::function<absl::Status(const std::string& folder)> prepare;
  // Mutates it and reads it: the error that a user would see, or OK. Internal errors are failures.
  std::function<absl::Status(HostileRandom& random, const std::string& folder)> attempt;
};

// All of them. A target is tried as often as others.
std::vector<HostileTarget> HostileTargets();

}  // namespace lockstep
