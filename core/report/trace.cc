#include "core/report/trace.h"

namespace lockstep {

void Trace::BeginStep(int64_t step) {
  const bool inside = step >= window_.first_step && step - window_.first_step < window_.steps;
  enabled_.store(inside, std::memory_order_relaxed);
}

void Trace::Add(TraceEvent event) {
  if (enabled()) Keep(std::move(event));
}

void Trace::Keep(TraceEvent event) {
  const std::lock_guard lock(mutex_);
  events_.push_back(std::move(event));
}

void Trace::AddMemory(const std::vector<MemorySample>& samples) {
  if (!enabled()) return;
  const std::lock_guard lock(mutex_);
  memory_.insert(memory_.end(), samples.begin(), samples.end());
}

std::vector<MemorySample> Trace::Memory() const {
  const std::lock_guard lock(mutex_);
  return memory_;
}

std::vector<TraceEvent> Trace::Events() const {
  const std::lock_guard lock(mutex_);
  return events_;
}

TraceSpan::TraceSpan(Trace* trace, TraceTrack track, std::string_view name)
    : trace_(trace != nullptr && trace->enabled() ? trace : nullptr) {
  if (trace_ == nullptr) return;
  event_.name = name;
  event_.track = track;
  event_.start_nanos = NowNanos();
}

TraceSpan::~TraceSpan() {
  if (trace_ == nullptr) return;
  event_.duration_nanos = NowNanos() - event_.start_nanos;
  trace_->Keep(std::move(event_));
}

}  // namespace lockstep
