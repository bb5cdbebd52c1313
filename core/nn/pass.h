#pragma once

#include <cstdint>

#include "core/autograd/tape.h"

namespace lockstep {

// One forward pass of one micro-batch: what layers need to know beyond their inputs. It names the
// logical place of the pass, never the rank that runs it.
struct Pass {
  enum class Mode { kTrain, kEvaluate };

  Tape& tape;
  Mode mode = Mode::kTrain;
  uint64_t seed = 0;
  int64_t step = 0;
  int64_t micro_batch = 0;  // of the step's global batch: the same index whatever runs it

  bool training() const { return mode == Mode::kTrain; }
  Kernels& kernels() const { return tape.kernels(); }
};

}  // namespace lockstep
