// What each kind of fault of //tools/bench:faults is to the program that counts them. A kind is a
// file of its own and an element of AllFaultKinds (faults.cc).

#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace lockstep {

struct FaultOptions {
  std::string folder;  // for the files of its runs; empty at first, removed by the caller
  int count = 1;       // how many faults to bring about
  uint64_t seed = 1;   // decides which, where and when
  // For kinds whose ranks are processes that tools/launch starts: its --launcher.
  std::string launcher = "build_defs/mpi_test.sh {ranks}";
  // Told one line after each run.
  std::function<void(const std::string&)> progress = [](const std::string&) {};
};

struct FaultCounts {
  int64_t runs = 0;
  int64_t faults = 0;                     // that were brought about while a run could notice
  std::vector<double> seconds_to_go_on;   // from a fault to the next step; empty: not measured
  std::vector<std::string> failures;      // what did not hold, a message each; empty: all did
  std::vector<std::string> details = {};  // counts by place, a line each
};

struct FaultKind {
  std::string name;     // for --kinds
  std::string meaning;  // what is done to a run, and what must hold
  int usual_count = 0;  // faults, where --count says nothing
  // Brings the faults about. An error is of the machine or of the program; what a run does wrong
  // stands in `failures`.
  std::function<absl::StatusOr<FaultCounts>(const FaultOptions&)> run;
};

}  // namespace lockstep
