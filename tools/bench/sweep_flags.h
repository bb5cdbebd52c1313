// The flags that say what a run of the benchmark goes through, which :collectives and the program
// of Open MPI that it starts have in common.

#pragma once

#include "absl/status/statusor.h"
#include "tools/bench/sweep.h"

namespace lockstep {

// For ProgramFlags::files.
inline constexpr char kSweepFlagsFile[] = "tools/bench/sweep_flags.cc";

// InvalidArgument names a flag whose value cannot be.
absl::StatusOr<Sweep> SweepFromFlags();

}  // namespace lockstep
