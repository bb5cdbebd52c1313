// The loop that times a call, the same for whatever carries it.

#pragma once

#include "absl/status/statusor.h"
#include "tools/bench/call_data.h"
#include "tools/bench/timed_call.h"

namespace lockstep {

// One rank's means to call: what is timed. An error on one rank ends the others' calls too.
class RankCalls {
 public:
  virtual ~RankCalls() = default;

  virtual int rank() const = 0;

  // Makes the call once with this rank's tensors, and returns when they may be used again.
  virtual absl::Status Run(const TimedCall& call, const CallTensors& tensors) = 0;

  // Not timed: returns once all ranks have called it, ...
  virtual absl::Status Barrier() = 0;
  // ... and the highest of all ranks' values.
  virtual absl::StatusOr<double> Max(double value) = 0;
};

// Seconds that a call takes: the mean over a batch of calls made one right after the other, by the
// clock of the rank that takes longest; the best of at least three batches, which take `budget`
// seconds together or as long as they must, after others that warm up. To be called by all ranks;
// all get the same.
absl::StatusOr<double> TimeCall(const TimedCall& call, const CallTensors& tensors, double budget,
                                RankCalls& calls);

// The same, after one call on tensors with known values, of whose outputs every element is checked.
absl::StatusOr<double> CheckAndTimeCall(const TimedCall& call, const CallTensors& tensors,
                                        double budget, RankCalls& calls);

}  // namespace lockstep
