#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "foresight/measurements.h"

namespace lockstep {

// Times collectives and messages of several sizes among `ranks` threads of this process, in about
// `seconds` seconds: what a call adds to the time of a rank that computes before and behind it, so
// that caches hold other things, and the ranks come to the call at different times.
absl::StatusOr<std::vector<MeasuredCall>> TimeCallsOfThreads(int ranks, double seconds);

// The same among processes: starts this very program under `mpirun`, whose ranks call
// TimeCallsOfProcess.
absl::StatusOr<std::vector<MeasuredCall>> TimeCallsOfProcesses(const std::string& mpirun,
                                                               int ranks);

// As one of the processes that mpirun has started. Rank 0 prints a line for each call.
absl::Status TimeCallsOfProcess(double seconds);

}  // namespace lockstep
