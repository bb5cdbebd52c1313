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
};

// The most bytes of parameters beside the shards that exist at one time: a unit is whole from the
// first block that uses it to the last, in each direction, and the next one is being gathered.
// `recomputes`: whether forward runs a second time before backward, when all units rest.
int64_t PeakParameterBytes(const std::vector<UnitNeeds>& units, bool recomputes = false);

}  // namespace lockstep
