#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"

namespace lockstep {

// What became of bits that flipped in runs with guard.every = 1.
struct FlipCounts {
  int64_t flips = 0;
  int64_t changed = 0;     // those that changed the run's losses or weights, where nothing watched
  int64_t seen = 0;        // those that stopped the run in the step in which they showed
  int64_t healed = 0;      // changed, but not where the guard repeated the step; not seen
  int64_t missed = 0;      // changed, and not seen in that step: none is right
  int64_t named = 0;       // seen, and the rank named, alone
  int64_t misnamed = 0;    // seen, and another rank named alone: none is right
  int64_t unnamed = 0;     // seen where three copies of the work exist, and no rank named: no, too
  int64_t quiet_runs = 0;  // runs in which nothing flipped
  int64_t false_alarms = 0;             // of those, reported: none is right
  std::vector<std::string> wrong = {};  // missed, misnamed and unnamed ones, a line each

  FlipCounts& operator+=(const FlipCounts& other);
  int64_t failures() const { return missed + misnamed + unnamed + false_alarms; }
};

// "1000 flips: ...", for people.
std::string ToString(const FlipCounts& counts);

// By what the bits were of: "state", "activations and their gradients", "gradients of parameters",
// "messages between ranks", "checkpoints".
using FlipsByKind = std::vector<std::pair<std::string, FlipCounts>>;
FlipCounts Total(const FlipsByKind& counts);

struct FlipOptions {
  int64_t flips = 1000;
  uint64_t seed = 1;
  std::string folder;  // for files; the caller's
  // "same_rank" or "other_rank", as guard.repeat_on has it.
  std::string repeat_on = "same_rank";
  std::function<void(const FlipCounts&)> progress = [](const FlipCounts&) {};  // after each flip
};

// Trains small models on several layouts of three ranks, each time with one flip at a random place
// drawn from the seed: of state, activations, gradients, and of what calls bring from other ranks.
// A tenth of the flips are in files of checkpoints, from which a run then goes on: it must pass the
// damaged one over, and come to the undisturbed losses and weights.
absl::StatusOr<FlipsByKind> CountFlips(const FlipOptions& options);

}  // namespace lockstep
