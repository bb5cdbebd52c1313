#include "core/optim/learning_rate_schedule.h"

#include <algorithm>

#include "core/base/elementary.h"

namespace lockstep {
namespace {

// How far `step` is on the way from `first` to `last`: 0 before it, 1 behind it.
double Progress(int64_t step, int64_t first, int64_t last) {
  const double span = static_cast<double>(std::max<int64_t>(1, last - first));
  return std::clamp(static_cast<double>(step - first) / span, 0.0, 1.0);
}

}  // namespace

double LearningRateSchedule::RateAt(int64_t step) const {
  if (step < warmup_steps) {
    return peak * static_cast<double>(step + 1) / static_cast<double>(warmup_steps + 1);
  }
  switch (kind) {
    case Kind::kConstant:
      return peak;
    case Kind::kCosine: {
      const double progress = Progress(step, warmup_steps, total_steps);
      return floor + 0.5 * (1 + SineAndCosineOfTurns(progress / 2).cosine) * (peak - floor);
    }
    case Kind::kLinear:
      return floor + (1 - Progress(step, warmup_steps, total_steps)) * (peak - floor);
    case Kind::kWarmupStableDecay:
      return floor + (1 - Progress(step, total_steps - decay_steps, total_steps)) * (peak - floor);
    case Kind::kStep: {
      const auto passed = std::count_if(milestones.begin(), milestones.end(),
                                        [step](int64_t milestone) { return milestone <= step; });
      return peak * Power(factor, passed);
    }
  }
  return peak;
}

}  // namespace lockstep
