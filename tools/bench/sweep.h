// What a run of the benchmark goes through, and the flags that say so, which :collectives and the
// program of Open MPI that it starts have in common.

#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "tools/bench/timed_call.h"

namespace lockstep {

struct Sweep {
  std::vector<Operation> operations = {};
  std::vector<int> ranks = {};
  int64_t min_bytes = 4;
  int64_t max_bytes = int64_t{256} << 20;
  int64_t factor = 8;
  DType dtype = DType::kF32;
  bool in_place = false;
  double seconds = 0.3;  // of each measurement
};

// For ProgramFlags::files.
inline constexpr char kSweepFlagsFile[] = "tools/bench/sweep.cc";

// Reads the flags, once they are parsed. InvalidArgument names a flag whose value cannot be.
absl::StatusOr<Sweep> SweepFromFlags();

// The flags that give another program of the benchmark the same sweep, with `ranks` ranks alone.
std::vector<std::string> SweepArguments(const Sweep& sweep, int ranks);

// All calls of a sweep with `ranks` ranks, by operation and then by size: `min_bytes`, times
// `factor` as often as that stays below `max_bytes`, and `max_bytes`; sizes that come out the same
// (CallOfSize) only once.
std::vector<TimedCall> CallsOf(const Sweep& sweep, int ranks);

// The most elements of any of the calls.
int64_t MostElements(const std::vector<TimedCall>& calls);

}  // namespace lockstep
