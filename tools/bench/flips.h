#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"

namespace lockstep {

// What became of bits that flipped in runs that look for wrong bits.
struct FlipCounts {
  int64_t flips = 0;
  int64_t changed = 0;   // those that changed the run, where nothing watched: a loss, or any bit
                         // that a rank held at its end
  int64_t seen = 0;      // those that stopped the run in time: in the step that had to see them
  int64_t healed = 0;    // changed, but not where the guard repeated the step; not seen
  int64_t missed = 0;    // changed, and not seen in time: none is right
  int64_t named = 0;     // seen, and the rank named, alone
  int64_t misnamed = 0;  // seen, and another rank named alone: none is right
  int64_t unnamed = 0;   // seen where three copies of the work exist, and no rank named: no, too
  // Seen by a check, after which the run went on to the bits of an undisturbed one; and to others,
  // of which none is right.
  int64_t gone_on = 0, strayed = 0;
  int64_t quiet_runs = 0;               // runs in which nothing flipped
  int64_t false_alarms = 0;             // reports of what did not happen: none is right
  std::vector<std::string> wrong = {};  // what counts as a failure, a line each

  FlipCounts& operator+=(const FlipCounts& other);
  // Takes note of whom the message of a seen flip names, where `rank` was wrong.
  void TakeNames(const std::string& message, int rank, bool must_be_named);
  // Takes note of whether a run that was stopped has gone on as it must.
  void TakeRestart(bool is_right) { (is_right ? gone_on : strayed) += 1; }
  int64_t failures() const { return missed + misnamed + unnamed + strayed + false_alarms; }
};

// "1000 flips: ...", for people.
std::string ToString(const FlipCounts& counts);

// By what the bits were of.
using FlipsByKind = std::vector<std::pair<std::string, FlipCounts>>;
// Those of a kind, which begin at 0.
FlipCounts& CountsOf(FlipsByKind& counts, const std::string& kind);
FlipCounts Total(const FlipsByKind& counts);

struct FlipOptions {
  int64_t flips = 1000;
  uint64_t seed = 1;
  std::string folder;  // for files; the caller's
  std::function<void(const FlipCounts&)> progress = [](const FlipCounts&) {};  // after each flip
};

// Trains small models on several layouts of three ranks with guard.every = 1 and guard.repeat_on as
// `repeat_on` says, each time with one flip at a random place drawn from the seed: of state,
// activations, gradients, and of what calls bring from other ranks. A tenth of the flips are in
// files of checkpoints, from which a run then goes on: it must pass the damaged one over, and come
// to the undisturbed losses and weights. Kinds: "state", "activations and their gradients",
// "gradients of parameters", "messages between ranks", "checkpoints".
absl::StatusOr<FlipsByKind> CountFlips(const FlipOptions& options, const std::string& repeat_on);

}  // namespace lockstep
