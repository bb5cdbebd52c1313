#include "core/run/guard/sound_state.h"

#include <array>

#include "absl/types/span.h"
#include "core/base/status.h"
#include "core/comm/agree.h"
#include "core/comm/host_numbers.h"

namespace lockstep {
namespace {

constexpr char kLabel[] = "wrong bits";

}  // namespace

void SoundState::Resumed(int64_t steps, int64_t checked_steps) {
  checked_ = checked_steps;
  compared_ = steps;
}

void SoundState::Checked(int64_t steps) {
  if (schedule_.IsDueBehind(steps)) checked_ = steps;
}

std::optional<int64_t> SoundState::checked_steps() const {
  if (!schedule_.checks()) return std::nullopt;
  return checked_;
}

absl::Status SoundState::Agree(const absl::Status& own, const Suspects& suspects,
                               Communicator& ranks) const {
  int64_t are_wrong = own.ok() ? 0 : 1;
  LS_RETURN_IF_ERROR(
      AllReduceNumbers(ranks, absl::MakeSpan(&are_wrong, 1), ReduceOp::kMax, kLabel));
  if (are_wrong == 0) return absl::OkStatus();
  // The first rank that tells ends the others, which must be done by then.
  LS_RETURN_IF_ERROR(AgreeOnFirst(set_aside_(suspects), ranks));
  return AgreeOnFirst(own, ranks);
}

absl::Status SoundState::Share(Communicator& world) {
  if (!schedule_.checks()) return absl::OkStatus();
  std::array<int64_t, 2> steps = {checked_, compared_};
  LS_RETURN_IF_ERROR(AllReduceNumbers(world, absl::MakeSpan(steps), ReduceOp::kMax, kLabel));
  checked_ = steps[0];
  compared_ = steps[1];
  return absl::OkStatus();
}

}  // namespace lockstep
