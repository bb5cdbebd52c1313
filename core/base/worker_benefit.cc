#include "core/base/worker_benefit.h"

#include <algorithm>

namespace lockstep {

void WorkerBenefit::Record(Duration own, Duration waited, Duration saved) {
  together_ += own + waited;
  waited_ += waited;
  saved_ += saved;
}

void WorkerBenefit::Judge(Clock::time_point now, bool disturbed) {
  if (!disturbed) credit_ += saved_;
  credit_ -= waited_;
  together_ = waited_ = saved_ = Duration::zero();
  if (credit_ >= kMostCredit) {
    credit_ = kMostCredit;
    rest_ = std::max(rest_ / 2, kShortestRest);
  } else if (credit_ < -kOverdraft) {
    rest_end_ = now + rest_;
    rest_ = std::min(rest_ * 2, kLongestRest);
    credit_ = Duration::zero();
  }
}

}  // namespace lockstep
