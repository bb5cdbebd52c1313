#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "absl/status/statusor.h"

namespace lockstep {

// What became of bits that flipped in runs with guard.every = 1.
struct FlipCounts {
  int64_t flips = 0;
  int64_t changed = 0;     // those that changed the run's losses or weights, where nothing watched
  int64_t seen = 0;        // those that stopped the run in their step
  int64_t missed = 0;      // changed, and not seen in that step: none is right
  int64_t named = 0;       // seen, and the rank named, alone
  int64_t misnamed = 0;    // seen, and another rank named alone: none is right
  int64_t quiet_runs = 0;  // runs in which nothing flipped
  int64_t false_alarms = 0;  // of those, reported: none is right
};

// "1000 flips: ...", for people.
std::string ToString(const FlipCounts& counts);

// Trains small models on several layouts, each time with one flip at a random place of state,
// activations or gradients of activations, drawn from the seed; files go to the folder, which is
// the caller's. `progress` is told the counts after each flip.
absl::StatusOr<FlipCounts> CountFlips(int64_t flips, uint64_t seed, const std::string& folder,
                                      const std::function<void(const FlipCounts&)>& progress);

}  // namespace lockstep
