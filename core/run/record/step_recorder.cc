#include "core/run/record/step_recorder.h"

#include <algorithm>
#include <cstddef>
#include <numeric>
#include <utility>

#include "absl/strings/str_cat.h"
#include "core/comm/operation.h"

namespace lockstep {

void StepRecorder::Start() {
  is_on_ = true;
  step_ = RecordedStep();
  kernels_.clear();
  calls_.clear();
  step_.stretches.emplace_back();
  allocator_.ResetPeaks();
  step_.live = live_ = allocator_.books().live();
  last_to_give_back_.reset();
}

void StepRecorder::Enter(const StepPlace& place) {
  if (!is_on_) return;
  EndStretch();
  step_.stretches.push_back({.place = place});
}

RecordedStep StepRecorder::Finish() {
  EndStretch();
  is_on_ = false;
  return std::exchange(step_, RecordedStep());
}

PeakBytes StepRecorder::TakePeaks() {
  PeakBytes peaks = PeaksOf(allocator_.books());
  for (int c = 0; c < kMemoryClasses; ++c) peaks.classes[c] -= live_[c];
  peaks.total -= std::accumulate(live_.begin(), live_.end(), int64_t{0});
  allocator_.ResetPeaks();
  return peaks;
}

void StepRecorder::EndStretch() {
  RecordedStretch& stretch = step_.stretches.back();
  stretch.peaks = TakePeaks();
  const ClassBytes live = allocator_.books().live();
  for (int c = 0; c < kMemoryClasses; ++c) stretch.kept[c] = live[c] - live_[c];
  live_ = live;
}

void StepRecorder::BeginGivingBack() {
  is_giving_back_ = is_on_ && !step_.stretches.back().gives_back;
  if (is_giving_back_) before_giving_back_ = allocator_.books().live();
}

void StepRecorder::EndGivingBack() {
  if (!is_giving_back_) return;
  RecordedStretch& stretch = step_.stretches.back();
  stretch.gives_back = true;
  stretch.peaks_before = TakePeaks();
  const ClassBytes live = allocator_.books().live();
  for (int c = 0; c < kMemoryClasses; ++c) {
    stretch.given_back[c] = before_giving_back_[c] - live[c];
  }
  // A stretch that sends has given back before, so the last one to give back has sent all of this.
  if (last_to_give_back_) step_.stretches[*last_to_give_back_].sent = stretch.given_back;
  last_to_give_back_ = step_.stretches.size() - 1;
}

void StepRecorder::OnKernel(KernelCall call) {
  if (!is_on_) return;
  const auto [at, is_new] =
      kernels_.try_emplace(std::move(call), static_cast<int32_t>(step_.kernels.size()));
  if (is_new) step_.kernels.push_back(at->first);
  step_.stretches.back().tasks.push_back({RecordedTask::Kind::kKernel, at->second});
}

int64_t StepRecorder::OnCall(const std::shared_ptr<const GroupInfo>& group,
                             const Signature& signature, const std::string& label) {
  if (!is_on_) return -1;
  const auto [at, is_new] = calls_.try_emplace(
      {group.get(), absl::StrCat(Name(signature.operation), DescribeArguments(signature)), label},
      static_cast<int32_t>(step_.calls.size()));
  if (is_new) step_.calls.push_back({.group = group, .signature = signature, .label = label});
  step_.stretches.back().tasks.push_back({RecordedTask::Kind::kCall, at->second});
  return at->second;
}

void StepRecorder::OnWait(int64_t call) {
  if (!is_on_ || call < 0) return;
  // When a rank looks after its sends depends on how fast its peers are. They take what was sent
  // before the step ends, so the rank never stands still for them alone.
  if (step_.calls[static_cast<size_t>(call)].signature.operation == Operation::kSend) return;
  step_.stretches.back().tasks.push_back({RecordedTask::Kind::kWait, static_cast<int32_t>(call)});
}

}  // namespace lockstep
