#pragma once

#include <map>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace lockstep {

// A short run of a preset's program.
struct RunToTime {
  std::vector<std::string> launcher = {};  // words before the program: mpirun and its options
  std::string program;
  std::string config;                         // text of a configuration
  std::vector<std::string> assignments = {};  // "key=value", laid over it
  std::map<std::string, std::string> environment = {};
};

// What its summary says.
struct TimedRun {
  std::string skipped = {};              // why it could not run, or was not predicted
  double predicted = 0, measured = 0;    // seconds of a step, of the slowest rank
  double memory_off = 0, bytes_off = 0;  // largest differences, as fractions of what was measured

  double error() const { return predicted / measured - 1; }
};

// Cancelled: by Ctrl-C.
absl::StatusOr<TimedRun> TimeRun(const RunToTime& run);

}  // namespace lockstep
