// The loop that times a call, the same for whatever carries it.

#pragma once

#include <functional>

#include "absl/status/statusor.h"
#include "core/comm/communicator.h"
#include "tools/bench/call_data.h"
#include "tools/bench/timed_call.h"

namespace lockstep {

// Makes the call once with this rank's tensors, and returns when they may be used again: what is
// timed. An error on one rank ends the others' calls too.
using RunCall = std::function<absl::Status()>;

// Returns the highest of all ranks' values, and not before all ranks have called it. Not timed.
using MaxOverRanks = std::function<absl::StatusOr<double>(double value)>;

// Over the ranks of a communicator, which outlives what is returned.
MaxOverRanks MaxOver(Communicator& comm);

// Seconds that a call takes: the mean over a batch of calls made one right after the other, by the
// clock of the rank that takes longest; the best of at least three batches, which take `budget`
// seconds together or as long as they must, after others that warm up. To be called by all ranks;
// all get the same.
absl::StatusOr<double> TimeCall(const RunCall& run, double budget, const MaxOverRanks& max);

// The same, after one call on tensors with known values, of whose outputs every element is checked.
absl::StatusOr<double> CheckAndTimeCall(const TimedCall& call, int rank, const CallTensors& tensors,
                                        const RunCall& run, double budget, const MaxOverRanks& max);

}  // namespace lockstep
