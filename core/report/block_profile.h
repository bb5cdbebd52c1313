#pragma once

#include <cstdint>

namespace lockstep {

// What a block of a model turned out to need for a micro-batch.
struct BlockProfile {
  int64_t nanos = 0;             // forward and backward; of the last block, with the loss
  int64_t activation_bytes = 0;  // that forward leaves there for backward
  int64_t parameter_bytes = 0;   // values, gradients, masters and optimizer state

  friend bool operator==(const BlockProfile&, const BlockProfile&) = default;
};

}  // namespace lockstep
