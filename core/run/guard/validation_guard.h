#pragma once

#include <cstdint>

#include "absl/status/status.h"
#include "core/run/guard/check_schedule.h"
#include "core/run/guard/sound_state.h"
#include "core/run/leg/rank_in_leg.h"
#include "core/run/leg/validation.h"

namespace lockstep {

// Validates again, behind steps that guard.every checks: each rank's sums must have the same bits,
// before they are summed over ranks. Where they differ, a third validation decides which of the two
// was wrong. What a rank gets wrong each time alike is not seen, whatever guard.repeat_on says.
class ValidationGuard {
 public:
  // `sound` outlives it, and hears of wrong bits before anybody tells.
  ValidationGuard(const CheckSchedule& schedule, const SoundState& sound)
      : schedule_(schedule), sound_(sound) {}

  // What this rank's part of the validation behind `steps` steps came to. Called by all ranks of
  // the leg; throws StatusException. DataLoss, which one rank tells, names the step and the rank.
  absl::Status Check(int64_t steps, const ValidationPart& first, RankInLeg& here) const;

 private:
  const CheckSchedule schedule_;
  const SoundState& sound_;
};

}  // namespace lockstep
