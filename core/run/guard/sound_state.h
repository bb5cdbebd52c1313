#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <optional>
#include <utility>

#include "absl/status/status.h"
#include "core/comm/communicator.h"
#include "core/run/guard/check_schedule.h"

namespace lockstep {

// Which of the states that a run has saved guard.every vouches for.
//
// Wrong bits that a check finds came up since the check before: what was saved in between may hold
// them, with checksums that are right. So a run that goes on takes a state that is older. Each
// checkpoint says behind how many steps the newest check was when it was saved, for the attempt
// that goes on from it.
class SoundState {
 public:
  // What wrong bits may be in: all that was saved with more steps behind it.
  struct Suspects {
    int64_t sound_steps = 0;
    bool are_copies_sound = false;  // copies in memory are not among them
  };
  // Sets suspects aside; an error where that failed.
  using SetAside = std::function<absl::Status(const Suspects& suspects)>;

  SoundState(const CheckSchedule& schedule, SetAside set_aside)
      : schedule_(schedule), set_aside_(std::move(set_aside)) {}

  // The run goes on from a checkpoint with `steps` steps behind it, `checked_steps` of them behind
  // the newest check. All replicas have read the same.
  void Resumed(int64_t steps, int64_t checked_steps);
  // A check of the state after so many steps has found nothing wrong. Nothing where none is due.
  void Checked(int64_t steps);
  // Replicas of the state after so many steps are the same.
  void Compared(int64_t steps) { compared_ = steps; }

  // Steps behind the newest check; nullopt in a run without checks.
  std::optional<int64_t> checked_steps() const;

  // What is suspect where a check fails; where replicas have parted; where the state has changed
  // since it was checked; and where it has changed since it was copied into memory after `steps`
  // steps.
  Suspects SinceCheck() const { return {.sound_steps = checked_}; }
  Suspects SinceComparison() const { return {.sound_steps = std::max(checked_, compared_)}; }
  Suspects BehindCheck() const { return {.sound_steps = checked_ - 1}; }
  static Suspects BehindCopy(int64_t steps) {
    return {.sound_steps = steps - 1, .are_copies_sound = true};
  }

  // Called by all ranks of a leg with what each of them has found. Where one has an error, all set
  // the suspects aside, and then one tells, as in AgreeOnFirst. Where setting aside failed, it
  // tells of that instead.
  absl::Status Agree(const absl::Status& own, const Suspects& suspects, Communicator& ranks) const;

  // Called by all ranks of the run between legs: those that were idle learn what was checked. An
  // error of the communication.
  absl::Status Share(Communicator& world);

 private:
  const CheckSchedule schedule_;
  const SetAside set_aside_;
  int64_t checked_ = 0, compared_ = 0;
};

}  // namespace lockstep
