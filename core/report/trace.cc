#include "core/report/trace.h"

#include <utility>

namespace lockstep {

void Trace::BeginStep(int64_t step) {
  const bool inside = step >= window_.first_step && step - window_.first_step < window_.steps;
  enabled_.store(inside, std::memory_order_relaxed);
}

void Trace::Add(TraceEvent event) {
  if (!enabled()) return;
  const std::lock_guard lock(mutex_);
  record_.events.push_back(std::move(event));
}

void Trace::AddMemory(const std::vector<MemorySample>& samples) {
  if (!enabled()) return;
  const std::lock_guard lock(mutex_);
  record_.memory.insert(record_.memory.end(), samples.begin(), samples.end());
}

TraceRecord Trace::Record() const {
  const std::lock_guard lock(mutex_);
  return record_;
}

}  // namespace lockstep
