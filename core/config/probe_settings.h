#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace lockstep {

// What a run writes down of what passes through it (docs/debugging.md).
struct ProbeSettings {
  int64_t first_step = 0;
  int64_t steps = 0;  // 0: nothing is probed
  // Patterns of blocks and layers (MatchesLayer, core/nn/split.h); parameters, their gradients and
  // their optimizer state belong to their layer.
  std::vector<std::string> places = {"*"};
  bool values = false;  // the tensors themselves, beside their hashes
};

}  // namespace lockstep
