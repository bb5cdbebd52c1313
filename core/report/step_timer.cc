#include "core/report/step_timer.h"

#include <algorithm>  // std::max, std::min
#include <new>

#include "absl/strings/str_cat.h"

namespace lockstep {

const char* Name(Phase phase) {
  constexpr const char* kNames[kPhases] = {"forward", "backward", "optimizer",
                                           "data",    "bubble",   "other"};
  return kNames[static_cast<size_t>(phase)];
}

std::vector<std::pair<const char*, int64_t>> StepTimes::ByName() const {
  std::vector<std::pair<const char*, int64_t>> times;
  for (int i = 0; i < kPhases; ++i) times.emplace_back(Name(static_cast<Phase>(i)), phases[i]);
  times.emplace_back("communication_exposed", communication_exposed);
  times.emplace_back("communication_overlapped", communication_overlapped);
  return times;
}

StepTimes& StepTimes::operator+=(const StepTimes& other) {
  total += other.total;
  for (size_t i = 0; i < phases.size(); ++i) phases[i] += other.phases[i];
  communication_exposed += other.communication_exposed;
  communication_overlapped += other.communication_overlapped;
  return *this;
}

void StepTimer::BeginStep(int64_t step) {
  if (options_.trace != nullptr) options_.trace->BeginStep(step);
  times_ = StepTimes();
  waited_nanos_ = 0;
  step_ = step;
  phase_ = Phase::kOther;
  since_exposed_ = options_.exposed_nanos();
  since_nanos_ = options_.now_nanos();
  step_start_nanos_ = since_nanos_;
}

StepTimes StepTimer::EndStep(int64_t in_flight_nanos) {
  const int64_t now = SwitchTo(Phase::kOther);
  times_.total = now - step_start_nanos_;
  times_.communication_overlapped = std::max<int64_t>(in_flight_nanos - waited_nanos_, 0);
  if (options_.trace != nullptr) {
    options_.trace->Add({.name = absl::StrCat("step ", step_),
                         .start_nanos = step_start_nanos_,
                         .duration_nanos = times_.total});
  }
  return times_;
}

int64_t StepTimer::SwitchTo(Phase next) {
  const int64_t exposed = options_.exposed_nanos();
  const int64_t now = options_.now_nanos();
  const int64_t elapsed = now - since_nanos_;
  // A wait is booked when it ends; clocks read in a different order must not make time negative.
  const int64_t waited = std::min(exposed - since_exposed_, elapsed);
  const int64_t counted = phase_ == Phase::kBubble ? 0 : waited;
  times_.phases[static_cast<size_t>(phase_)] += elapsed - counted;
  times_.communication_exposed += counted;
  waited_nanos_ += waited;
  phase_ = next;
  since_nanos_ = now;
  since_exposed_ = exposed;
  return now;
}

StepTimer::Scope::Scope(StepTimer& timer, Phase phase, int64_t micro_batch)
    : timer_(timer),
      outer_(timer.phase_),
      micro_batch_(micro_batch),
      start_nanos_(timer.SwitchTo(phase)) {}

StepTimer::Scope::~Scope() {
  try {
    const Phase phase = timer_.phase_;
    const int64_t now = timer_.SwitchTo(outer_);
    Trace* trace = timer_.options_.trace;
    if (trace == nullptr || !trace->enabled()) return;
    trace->Add({.name = Name(phase),
                .start_nanos = start_nanos_,
                .duration_nanos = now - start_nanos_,
                .micro_batch = micro_batch_});
  } catch (const std::bad_alloc&) {
    // A step that unwinds for want of memory comes by here: its times are nobody's concern.
  }
}

}  // namespace lockstep
