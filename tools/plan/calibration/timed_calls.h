#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "foresight/measurements.h"

namespace lockstep {

// Number of calls that TimeCallsOfThreads times where it leaves nothing out.
int CallsToTime();

// What calls may take in all where nothing else is said.
inline constexpr double kMostSecondsOfCalls = 10;

// Times collectives and messages of several sizes among `ranks` threads of this process, and how
// long ranks that meet wait for the last of them (Measurements without kernels), in about `seconds`
// seconds: what a call adds to the time of a rank that computes before and behind it, so that
// caches hold other things, and the ranks come to the call at different times. A machine that is so
// busy that calls take more than `most_seconds` in all leaves out those of the largest sizes, and
// times those of the smallest all the same.
absl::StatusOr<Measurements> TimeCallsOfThreads(int ranks, double seconds,
                                                double most_seconds = kMostSecondsOfCalls);

// The same among processes: starts this very program under `mpirun`, whose ranks call
// TimeCallsOfProcess.
absl::StatusOr<Measurements> TimeCallsOfProcesses(const std::string& mpirun, int ranks);

// As one of the processes that mpirun has started. Rank 0 prints a line for each call.
absl::Status TimeCallsOfProcess(double seconds);

}  // namespace lockstep
