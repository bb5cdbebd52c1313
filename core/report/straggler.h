#pragma once

#include <cstdint>

#include "core/report/step_timer.h"

namespace lockstep {

// A rank that took longer for its own work than the other ranks with the same work.
struct Straggler {
  int64_t step = 0;  // the last one of the window, counted from 0
  int32_t rank = 0;
  Phase part = Phase::kOther;  // where it lost most
  double factor = 0;           // its time over the median of the others'
  double seconds = 0;          // what it took longer than that median, a step
};

// A rank that was a straggler in some windows of a run.
struct SlowRank {
  int64_t windows = 0;
  Straggler worst;  // the largest factor
};

}  // namespace lockstep
