// Runs ranks as threads of this process.

#pragma once

#include "absl/status/status.h"
#include "core/comm/rank_handle.h"

namespace lockstep {

// Calls `run` once for each rank, each in a thread of its own (a single rank in the calling one),
// and returns when all have returned. A rank that returns an error or throws a std::exception
// aborts the world, which ends the waits of the others. Returns OK if all ranks did, else the first
// cause: that of the rank that failed first, preceded by "rank 2: " where there are several, or
// what went wrong between them.
//
//   return RunRanks(4, {.timeout = options.timeout}, [&](RankHandle& handle) {
//     return Train(handle, config);
//   });
absl::Status RunRanks(int ranks, const LaunchOptions& options, const RankFunction& run);

}  // namespace lockstep
