#include "core/run/guard/run_guards.h"

#include <utility>

#include "core/base/clock.h"
#include "core/base/status.h"

namespace lockstep {

RunGuards::RunGuards(const Settings& settings, const RankTools& tools,
                     SoundState::SetAside set_aside)
    : schedule_{.every = settings.guard.every, .steps = settings.steps},
      tools_(tools),
      sound_(schedule_, std::move(set_aside)),
      repeats_(schedule_, settings.guard.repeat_on, tools, sound_),
      replicas_(schedule_, tools.kernels, sound_),
      validations_(schedule_, sound_),
      moves_(schedule_, tools) {}

absl::Status RunGuards::Timed(absl::FunctionRef<absl::Status()> check) {
  const int64_t start = NowNanos();
  const absl::Status found = check();
  costs_.nanos += NowNanos() - start;
  return found;
}

absl::Status RunGuards::BeginStep(int64_t step, RankInLeg& here) {
  return Timed([&] { return repeats_.Begin(step, here); });
}

absl::Status RunGuards::EndStep(int64_t step, const StepResult& result, RankInLeg& here,
                                const RepeatGuard::Again& again) {
  costs_.steps += schedule_.IsDueBehind(step + 1) ? 1 : 0;
  return Timed([&] { return repeats_.End(step, result, here, again); });
}

absl::Status RunGuards::AfterSteps(int64_t steps, RankInLeg& here) {
  LS_RETURN_IF_ERROR(
      Timed([&] { return replicas_.AfterSteps(steps, here.strategy().State(), here.ranks()); }));
  sound_.Checked(steps);
  return absl::OkStatus();
}

absl::Status RunGuards::CheckValidation(int64_t steps, const ValidationPart& own, RankInLeg& here) {
  return Timed([&] { return validations_.Check(steps, own, here); });
}

absl::Status RunGuards::BeforeSaving(int64_t steps, RankInLeg& here) {
  return Timed(
      [&] { return replicas_.BeforeSaving(steps, here.strategy().State(), here.ranks()); });
}

absl::Status RunGuards::BeforeSavingLast(int64_t steps, RankInLeg& here) {
  LS_RETURN_IF_ERROR(Timed([&] { return repeats_.CheckAtRest(steps, here); }));
  return BeforeSaving(steps, here);
}

absl::Status RunGuards::BeginMove(int64_t steps, RankInLeg* here) {
  LS_RETURN_IF_ERROR(Timed(
      [&] { return here == nullptr ? absl::OkStatus() : repeats_.CheckAtRest(steps, *here); }));
  LS_RETURN_IF_ERROR(Timed([&] { return moves_.Begin(here); }));
  repeats_.Forget();
  replicas_.Forget();
  return absl::OkStatus();
}

absl::Status RunGuards::EndMove(const MeshChange& change, RankInLeg* here) {
  LS_RETURN_IF_ERROR(Timed([&] { return moves_.End(change, here); }));
  return sound_.Share(tools_.world);  // ranks that were idle know of no check
}

}  // namespace lockstep
