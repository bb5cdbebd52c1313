#include "core/run/guard/loss_watch.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <numeric>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/types/span.h"
#include "core/base/status.h"
#include "core/checkpoint/checkpoint_folder.h"
#include "core/comm/agree.h"
#include "core/comm/host_numbers.h"
#include "core/report/metrics.h"
#include "nlohmann/json.hpp"

namespace lockstep {
namespace {

std::string Circumstances(const StepResult& result) {
  return absl::StrCat("(learning rate ", result.learning_rate, ", gradient norm ",
                      result.gradient_norm, "), and the run stops before it saves anything. ");
}

std::string WhatIsNot(const StepResult& result) {
  if (!std::isfinite(result.loss)) return absl::StrCat("the loss is ", result.loss);
  return "the loss is finite, and the norm of the gradients is not";
}

}  // namespace

// No checkpoint behind the step has been saved. One in memory is not seen from a copy of the
// directory, and a schedule whose length is not given has that of the run, which ends here.
std::string LossWatch::HowToRepeat(int64_t step) const {
  const auto found = ListCheckpoints(checkpoints_);
  const bool has_checkpoint = found.ok() && !found->empty();
  return absl::StrCat("To see the step's tensors, repeat ",
                      has_checkpoint ? "it in a copy of the run's directory: --resume"
                                     : "the run up to it, with another --out:",
                      " --set train.steps=", step + 1,
                      " --set schedule.total_steps=", settings_.schedule.total_steps,
                      " --set probe.first_step=", step, " --set probe.steps=1 (docs/debugging.md)");
}

bool LossWatch::IsFinite(const StepResult& result) {
  return std::isfinite(result.loss) && std::isfinite(result.gradient_norm);
}

absl::Status LossWatch::Resume(const std::string& metrics, int64_t steps, Communicator& ranks) {
  losses_.clear();
  if (settings_.guard.loss_jump == 0) return absl::OkStatus();
  absl::Status read;
  if (ranks.rank() == 0) {
    read = ForEachMetric(metrics, "loss", steps, [this](const nlohmann::json& row) {
      // JSON has null for what is infinite or NaN.
      const bool is_finite = row["loss"].is_number() && row.contains("gradient_norm") &&
                             row["gradient_norm"].is_number();
      const bool is_skipped = row.contains("skipped") && row["skipped"] == true;
      if (is_finite && !is_skipped) Add(row["loss"].get<double>());
    });
    if (absl::IsNotFound(read)) read = absl::OkStatus();
  }
  LS_RETURN_IF_ERROR(AgreeOnFirst(read, ranks));
  return Share(ranks);
}

absl::Status LossWatch::Take(int64_t step, const StepResult& result) {
  if (result.skipped && std::isfinite(result.loss)) return absl::OkStatus();
  if (!IsFinite(result)) {
    if (settings_.on_nan == OnNan::kContinue) return absl::OkStatus();
    return absl::OutOfRangeError(absl::StrCat(
        "step ", step + 1, ": ", WhatIsNot(result), " ", Circumstances(result),
        "Lower schedule.learning_rate, or clip with train.clip_norm, and --resume from the newest "
        "checkpoint; train.on_nan=continue goes on. ",
        settings_.precision.compute == DType::kF16
            ? "Where fp16 is too narrow for the model, use precision.compute=bf16. "
            : "",
        HowToRepeat(step)));
  }
  const double before = mean();
  if (!Jumps(result.loss)) return absl::OkStatus();
  return absl::OutOfRangeError(absl::StrCat(
      "step ", step + 1, ": the loss jumps to ", result.loss,
      ", more than guard.loss_jump = ", settings_.guard.loss_jump, " times the ", before,
      " of the steps before ", Circumstances(result),
      "--resume goes on from the newest checkpoint, with guard.loss_jump=0 past the jump. ",
      HowToRepeat(step)));
}

double LossWatch::mean() const {
  if (losses_.size() < kLeast) return 0;
  return std::accumulate(losses_.begin(), losses_.end(), 0.0) / static_cast<double>(losses_.size());
}

bool LossWatch::Jumps(double loss) {
  const double factor = settings_.guard.loss_jump, before = mean();
  if (factor > 0 && before > 0 && loss > factor * before) return true;
  Add(loss);
  return false;
}

void LossWatch::Add(double loss) {
  losses_.push_back(loss);
  if (losses_.size() > kMost) losses_.pop_front();
}

absl::Status LossWatch::Share(Communicator& ranks) {
  std::array<double, kMost> losses;
  losses.fill(std::numeric_limits<double>::quiet_NaN());  // as no loss here is
  std::ranges::copy(losses_, losses.begin());
  LS_RETURN_IF_ERROR(BroadcastNumbers(ranks, absl::MakeSpan(losses), 0, "losses before"));
  losses_.assign(losses.begin(),
                 std::ranges::find_if(losses, [](double loss) { return std::isnan(loss); }));
  return absl::OkStatus();
}

}  // namespace lockstep
