#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "tools/hostile/judgement.h"
#include "tools/hostile/target.h"

namespace lockstep {

// One try: which target, and what its random numbers begin with.
struct HostileTry {
  std::string target;
  uint64_t seed = 0;
};

// A try that went wrong, and how: a signal, an exit, an internal error, a message that is none or
// too long, no end within the limit.
struct HostileFailure {
  HostileTry attempt;
  std::string what;
};

struct HostileOptions {
  std::string folder;         // for the files of tries; made if missing, and emptied
  double limit_seconds = 20;  // of a try
  MessageLimit message = {};
};

// Makes the tries in child processes, many in each: one that ends early fails its try, and the next
// goes on behind it. Calls `progress` now and then with how many are done.
absl::StatusOr<std::vector<HostileFailure>> MakeTries(
    const std::vector<HostileTry>& tries, const HostileOptions& options,
    const std::function<void(size_t done)>& progress = [](size_t) {});

// `count` tries of all targets in turn, or of one if it is named.
absl::StatusOr<std::vector<HostileTry>> PlanTries(uint64_t seed, int64_t count,
                                                  const std::string& target = "");

}  // namespace lockstep
