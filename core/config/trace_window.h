#pragma once

#include <cstdint>

namespace lockstep {

// The steps of a run that its trace records.
struct TraceWindow {
  int64_t first_step = 0;
  int64_t steps = 0;  // 0: none
};

}  // namespace lockstep
