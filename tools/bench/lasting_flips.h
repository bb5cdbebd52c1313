#pragma once

#include "absl/status/statusor.h"
#include "tools/bench/flips.h"

namespace lockstep {

// Trains the small models of CountFlips with guard.every = N (2 to 8, drawn anew each time), each
// time with wrong bits that stay until the guard looks. Kinds, a third of the flips each:
//
// - "processors gone wrong": a rank flips a bit of what it computes in each step from a random one
//   on, guard.repeat_on = "other_rank". Must be seen by the next check where the step that is
//   checked comes out wrong. (A bit may change nothing there, such as one that dropout zeroes.)
// - "parted replicas": a bit of the state of one of three replicas flips once. Must be seen by the
//   next check where the replicas still differ then.
// - "shards beside their copies": a bit of a shard (fsdp) flips once, between a copy of the state
//   in memory and the next step. Each must be seen when that step begins.
//
// A flip "changed the result" where it must be seen, as found by runs without a guard. The rank
// must be named wherever three ranks hold the whole state, and that of each shard. Where a loss or
// gradient is infinite or NaN before the check, train.on_nan stops the run, whose message names a
// tensor and no rank: these are a kind of their own, "what made a loss or gradient infinite or
// NaN".
absl::StatusOr<FlipsByKind> CountLastingFlips(const FlipOptions& options);

}  // namespace lockstep
