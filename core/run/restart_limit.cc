#include "core/run/restart_limit.h"

#include <algorithm>

namespace lockstep {

bool RestartLimit::IsPassed(std::optional<int64_t> steps) {
  in_vain_ = steps > best_ ? 0 : in_vain_ + 1;
  best_ = std::max(best_, steps);
  return in_vain_ > most_;
}

}  // namespace lockstep
