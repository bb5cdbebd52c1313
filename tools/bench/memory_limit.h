// What the machine's memory could do.

#pragma once

#include "absl/types/span.h"
#include "tools/bench/call_data.h"
#include "tools/bench/timed_call.h"

namespace lockstep {

// Seconds that the least traffic of a call (LeastTraffic) takes, moved in the ranks' memory by as
// many threads as there are ranks, which never wait for each other: the fastest of several loops
// that read all streams of a rank, add them up where there are several, and write the sum to all
// its outputs: through the caches, past them (streaming stores), and where nothing is added up, by
// memcpy. Timed as TimeCall does, each in its share of `budget` seconds. Contents of the memory are
// lost.
double MeasureMemorySeconds(const TimedCall& call, absl::Span<const CallTensors> memory,
                            double budget);

}  // namespace lockstep
