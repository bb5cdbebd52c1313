#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <utility>

#include "absl/status/status.h"
#include "core/comm/communicator.h"

namespace lockstep {

// Which of the states that a run has saved guard.every vouches for.
//
// Wrong bits that a check finds came up since the check before: what was saved in between may hold
// them, with checksums that are right. So a run that goes on takes a state that is older. Each
// checkpoint says behind how many steps the newest check was when it was saved, for the attempt
// that goes on from it.
class SoundState {
 public:
  // Sets aside what the run has saved with more than so many steps behind it.
  using SetAside = std::function<void(int64_t sound_steps)>;

  // Steps between checks; 0: there are none.
  SoundState(int64_t every, SetAside set_aside) : every_(every), set_aside_(std::move(set_aside)) {}

  // The run goes on from a checkpoint behind the last check before which were so many steps.
  void Resumed(int64_t checked_steps);
  // A check of the state after so many steps has found nothing wrong. Nothing where none is due.
  void Checked(int64_t steps);
  // Replicas of the state after so many steps are the same.
  void Compared(int64_t steps) { compared_ = steps; }

  // Steps behind the newest check; nullopt in a run without checks.
  std::optional<int64_t> checked_steps() const;

  // Since when the bits may have been wrong.
  enum class Since {
    kCheck,        // the newest check
    kCheckBefore,  // the check before that
    kComparison,   // since replicas were the same
  };
  // Called by all ranks of a leg with what each of them has found. Where one has found wrong bits,
  // all set aside what may hold them, and then one tells, as in AgreeOnFirst.
  absl::Status Agree(const absl::Status& own, Since since, Communicator& ranks) const;

  // Called by all ranks of the run between legs: those that were idle learn what was checked.
  absl::Status Share(Communicator& world);

 private:
  int64_t SoundSteps(Since since) const;

  const int64_t every_;
  const SetAside set_aside_;
  int64_t checked_ = 0, checked_before_ = 0, compared_ = 0;
};

}  // namespace lockstep
