#pragma once

#include <cstdint>

namespace lockstep {

// Behind which steps of a run its bits are checked (guard.every): each `every`, and the last one,
// as nobody looks at the state of a run that is over.
struct CheckSchedule {
  int64_t every = 0;  // 0: never
  int64_t steps = 0;  // of the run

  bool checks() const { return every > 0; }
  bool IsDueBehind(int64_t done) const { return checks() && (done % every == 0 || done == steps); }
};

}  // namespace lockstep
