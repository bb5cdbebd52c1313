// Open MPI's own collectives, timed by another program (mpi_collectives.cc) under mpirun.

#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <utility>

#include "absl/status/statusor.h"
#include "tools/bench/sweep.h"

namespace lockstep {

// Seconds by operation and bytes.
using MpiTimes = std::map<std::pair<std::string, int64_t>, double>;

// The line of one call, for mpi_collectives to print.
std::string MpiTimesLine(const TimedCall& call, double seconds);

// Reads what mpi_collectives prints; lines that are not its own are somebody else's.
absl::StatusOr<MpiTimes> ParseMpiTimes(const std::string& output);

// Seconds of the call; 0 if there are none.
double SecondsOf(const TimedCall& call, const MpiTimes& times);

// The mpirun that `path` means: itself, or if empty, the one on PATH. NotFound if there is none.
absl::StatusOr<std::string> FindMpirun(const std::string& path);

// Runs the sweep's calls with `ranks` ranks, as processes of this machine that share memory. An
// error says how that ended.
absl::StatusOr<MpiTimes> RunMpi(const std::string& mpirun, const Sweep& sweep, int ranks);

}  // namespace lockstep
