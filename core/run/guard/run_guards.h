#pragma once

#include <cstdint>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "core/config/settings.h"
#include "core/report/rank_report.h"
#include "core/report/results.h"
#include "core/run/guard/check_schedule.h"
#include "core/run/guard/move_guard.h"
#include "core/run/guard/repeat_guard.h"
#include "core/run/guard/replica_guard.h"
#include "core/run/guard/sound_state.h"
#include "core/run/guard/validation_guard.h"
#include "core/run/leg/rank_in_leg.h"
#include "core/run/leg/validation.h"

namespace lockstep {

// All that looks for wrong bits in a run (guard.every), at the moments at which a run has to ask,
// and what it costs. Members return DataLoss, which one rank tells, where bits are wrong; they are
// called by all ranks of the leg unless they say otherwise.
class RunGuards {
 public:
  // The tools outlive it. `set_aside`: what becomes of saved states that may be wrong.
  RunGuards(const Settings& settings, const RankTools& tools, SoundState::SetAside set_aside);
  // Its parts know each other.
  RunGuards(const RunGuards&) = delete;
  RunGuards& operator=(const RunGuards&) = delete;

  SoundState& sound() { return sound_; }
  const GuardCosts& costs() const { return costs_; }

  // Before step `step`, counted from 0, and after it; `again` trains it once more.
  absl::Status BeginStep(int64_t step, RankInLeg& here);
  absl::Status EndStep(int64_t step, const StepResult& result, RankInLeg& here,
                       const RepeatGuard::Again& again);
  // When `steps` steps are behind the run: compares replicas where a check is due, which then
  // vouches for the state.
  absl::Status AfterSteps(int64_t steps, RankInLeg& here);

  // What this rank has of the validation behind `steps` steps; 0: before the first one.
  absl::Status CheckValidation(int64_t steps, const ValidationPart& own, RankInLeg& here);
  // Before anything is saved with `steps` steps behind it; and before what is saved last, which no
  // further step will look at.
  absl::Status BeforeSaving(int64_t steps, RankInLeg& here);
  absl::Status BeforeSavingLast(int64_t steps, RankInLeg& here);

  // Around a change of mesh behind `steps` steps. Called by all ranks of the run, with null by
  // those that the leg leaves idle: the one that ends, and the one that begins.
  absl::Status BeginMove(int64_t steps, RankInLeg* here);
  absl::Status EndMove(const MeshChange& change, RankInLeg* here);

 private:
  // Books the time of a check.
  absl::Status Timed(absl::FunctionRef<absl::Status()> check);

  const CheckSchedule schedule_;
  const RankTools& tools_;
  SoundState sound_;
  RepeatGuard repeats_;
  ReplicaGuard replicas_;
  ValidationGuard validations_;
  MoveGuard moves_;
  GuardCosts costs_;
};

}  // namespace lockstep
