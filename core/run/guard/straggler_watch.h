// Ranks that are slower than the others.

#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "core/comm/communicator.h"
#include "core/config/settings.h"
#include "core/report/step_timer.h"
#include "core/report/straggler.h"

namespace lockstep {

// What a rank did by itself, in nanoseconds by Phase, added up over a window of steps: without what
// it waited for other ranks.
using RankWork = std::array<int64_t, kPhases>;

// The ranks, in order, whose work took more than `factor` times the median of the others' in the
// same stage. `work` has one entry a rank; the ranks of a stage, all equally many, lie one behind
// the other. A stage with one rank has nobody to be compared with.
std::vector<Straggler> FindStragglers(absl::Span<const RankWork> work, int stages, double factor,
                                      int64_t steps, int64_t last_step);

// Compares the ranks of a run, every guard.straggler_steps steps.
class StragglerWatch {
 public:
  explicit StragglerWatch(const GuardSettings& guard) : guard_(guard) {}

  // Called by all `ranks` after each step, with its times. At the end of a window they tell each
  // other what they did: returns the stragglers, the same on all ranks. Else none, without
  // communication.
  absl::StatusOr<std::vector<Straggler>> Take(int64_t step, const StepTimes& times,
                                              Communicator& ranks, int stages);

  // Begins a window anew: other ranks take part from here on, or these do other work.
  void BeginWindow();

  // All stragglers so far, by rank.
  std::vector<SlowRank> slow_ranks() const;

 private:
  const GuardSettings guard_;
  RankWork work_ = {};
  int64_t steps_ = 0;  // of the window so far
  std::map<int, SlowRank> slow_ranks_;
};

}  // namespace lockstep
