#pragma once

#include <vector>

#include "absl/status/statusor.h"
#include "core/comm/rank_handle.h"
#include "foresight/measurements.h"

namespace lockstep {

// Times how much longer ranks take that meet in a barrier after some milliseconds of kernels than
// ranks that compute the same without meeting, in about `seconds` seconds: what the wait for the
// last rank costs, and what it costs that all of them use the memory at the same moments. The
// barrier itself is not counted. To be called by all ranks; rank 0 gets what counts.
absl::StatusOr<std::vector<MeasuredWait>> TimeWaits(RankHandle& handle, Transport transport,
                                                    double seconds);

}  // namespace lockstep
