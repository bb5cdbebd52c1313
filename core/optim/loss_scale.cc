#include "core/optim/loss_scale.h"

#include <limits>

#include "absl/strings/str_cat.h"

namespace lockstep {

absl::Status LossScale::Update(bool overflowed) {
  if (!enabled()) return absl::OkStatus();
  if (overflowed) ++state_.skipped;
  if (options_.kind == LossScaleOptions::Kind::kStatic) return absl::OkStatus();
  if (overflowed) {
    state_.scale *= options_.backoff;
    state_.good_steps = 0;
    if (state_.scale >= 1) return absl::OkStatus();
    return absl::FailedPreconditionError(absl::StrCat(
        "the loss scale has fallen to ", state_.scale, ", below 1, after ", state_.skipped,
        " skipped steps: gradients are infinite or NaN even unscaled. Training diverges: lower "
        "schedule.learning_rate or set train.clip_norm; or, where fp16 is too narrow for the "
        "model, use precision.compute = \"bf16\"."));
  }
  if (++state_.good_steps < options_.interval) return absl::OkStatus();
  state_.good_steps = 0;
  // The scale is applied in fp32.
  const double grown = state_.scale * options_.growth;
  if (grown <= std::numeric_limits<float>::max()) state_.scale = grown;
  return absl::OkStatus();
}

}  // namespace lockstep
