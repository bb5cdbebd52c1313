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
class MpiTimes {
 public:
  // Reads what mpi_collectives prints; lines that are not its own are somebody else's.
  static absl::StatusOr<MpiTimes> Parse(const std::string& output);

  // 0 if there is none.
  double Of(const TimedCall& call) const;

 private:
  std::map<std::pair<std::string, int64_t>, double> seconds_;
};

// The line of one call, for mpi_collectives to print and for Parse to read.
std::string MpiTimesLine(const TimedCall& call, double seconds);

// The mpirun that `path` means: itself, or if empty, the one on PATH. NotFound says so.
absl::StatusOr<std::string> FindMpirun(const std::string& path);

// Runs the sweep's calls with `ranks` ranks, as processes of this machine that share memory. An
// error says how that ended.
absl::StatusOr<MpiTimes> RunMpi(const std::string& mpirun, const Sweep& sweep, int ranks);

}  // namespace lockstep
