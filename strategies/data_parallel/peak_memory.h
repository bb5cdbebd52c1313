#pragma once

#include <cstdint>
#include <vector>

namespace lockstep {

// What a unit needs beside its shards, in bytes, and when.
struct UnitNeeds {
  int first = 0, last = 0;  // of the blocks that use it
  bool in_backward = true;  // whether gradients flow through these blocks
  int64_t whole = 0;        // its parameters
  int64_t resting = 0;      // kept of them between forward and backward
  int64_t gradient = 0;     // the whole of it
  int64_t tied = 0;         // gradients of parameters that are tied to its own
};

// The most bytes of parameters beside the shards that exist at one time: a unit is whole from the
// first block that uses it to the last, in each direction, and the next one is being gathered.
// `recomputes`: whether forward runs a second time before backward, when all units rest.
int64_t PeakParameterBytes(const std::vector<UnitNeeds>& units, bool recomputes = false);

// The most bytes of gradients beside the shards where each backward reduces them and
// `sums_under_way` may be on their way; and where the gradients of all units stay until the last
// one.
int64_t PeakGradientBytes(const std::vector<UnitNeeds>& units, int64_t sums_under_way);
int64_t AllGradientBytes(const std::vector<UnitNeeds>& units);

}  // namespace lockstep
