#include "core/run/stop/stop_request.h"

#include <algorithm>

namespace lockstep {

bool StopRequest::MayBegin(int64_t step) {
  const std::lock_guard lock(mutex_);
  if (last_ && step >= *last_) return false;
  begun_ = std::max(begun_, step + 1);
  return true;
}

bool StopRequest::BeginAnew() {
  const std::lock_guard lock(mutex_);
  if (last_) return false;
  begun_ = 0;
  return true;
}

std::optional<int64_t> StopRequest::Stop() {
  const std::lock_guard lock(mutex_);
  if (begun_ == 0) return std::nullopt;
  if (!last_) last_ = begun_;
  return last_;
}

std::optional<int64_t> StopRequest::stopped_after() const {
  const std::lock_guard lock(mutex_);
  return last_;
}

}  // namespace lockstep
