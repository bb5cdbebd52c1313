#include "core/optim/learning_rate_schedule.h"

#include <algorithm>

#include "core/base/elementary.h"

namespace lockstep {

double LearningRateSchedule::RateAt(int64_t step) const {
  if (step < warmup_steps) {
    return peak * static_cast<double>(step + 1) / static_cast<double>(warmup_steps + 1);
  }
  switch (kind) {
    case Kind::kConstant:
      return peak;
    case Kind::kCosine: {
      const double span = static_cast<double>(std::max<int64_t>(1, total_steps - warmup_steps));
      const double progress = std::min(1.0, static_cast<double>(step - warmup_steps) / span);
      return floor + 0.5 * (1 + SineAndCosineOfTurns(progress / 2).cosine) * (peak - floor);
    }
    case Kind::kStep: {
      const auto passed = std::count_if(milestones.begin(), milestones.end(),
                                        [step](int64_t milestone) { return milestone <= step; });
      return peak * Power(factor, passed);
    }
  }
  return peak;
}

}  // namespace lockstep
