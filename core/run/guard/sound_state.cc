#include "core/run/guard/sound_state.h"

#include <algorithm>
#include <array>

#include "absl/types/span.h"
#include "core/base/status.h"
#include "core/comm/agree.h"
#include "core/comm/host_numbers.h"

namespace lockstep {
namespace {

constexpr char kLabel[] = "wrong bits";

}  // namespace

void SoundState::Resumed(int64_t checked_steps) {
  checked_ = checked_before_ = compared_ = checked_steps;
}

void SoundState::Checked(int64_t steps) {
  if (every_ == 0 || steps % every_ != 0) return;
  checked_before_ = checked_;
  checked_ = steps;
}

std::optional<int64_t> SoundState::checked_steps() const {
  if (every_ == 0) return std::nullopt;
  return checked_;
}

int64_t SoundState::SoundSteps(Since since) const {
  switch (since) {
    case Since::kCheck:
      return checked_;
    case Since::kCheckBefore:
      return checked_before_;
    case Since::kComparison:
      return std::max(checked_, compared_);
  }
  return 0;
}

absl::Status SoundState::Agree(const absl::Status& own, Since since, Communicator& ranks) const {
  int64_t are_wrong = own.ok() ? 0 : 1;
  LS_RETURN_IF_ERROR(
      AllReduceNumbers(ranks, absl::MakeSpan(&are_wrong, 1), ReduceOp::kMax, kLabel));
  if (are_wrong == 0) return absl::OkStatus();
  set_aside_(SoundSteps(since));
  // The first rank that tells ends the others, which must be done.
  LS_RETURN_IF_ERROR(ranks.Barrier(kLabel).Wait());
  return AgreeOnFirst(own, ranks);
}

absl::Status SoundState::Share(Communicator& world) {
  if (every_ == 0) return absl::OkStatus();
  std::array<int64_t, 3> steps = {checked_, checked_before_, compared_};
  LS_RETURN_IF_ERROR(AllReduceNumbers(world, absl::MakeSpan(steps), ReduceOp::kMax, kLabel));
  checked_ = steps[0];
  checked_before_ = steps[1];
  compared_ = steps[2];
  return absl::OkStatus();
}

}  // namespace lockstep
