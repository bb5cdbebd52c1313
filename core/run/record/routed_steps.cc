#include "core/run/record/routed_steps.h"

#include <algorithm>
#include <iterator>  // std::ssize

namespace lockstep {
namespace {

constexpr MemoryClass kRouted[] = {MemoryClass::kActivations, MemoryClass::kCommunication,
                                   MemoryClass::kWorkspace};

size_t Index(RoutedStep::Kind kind) { return static_cast<size_t>(kind); }

}  // namespace

StepsOfPeaks::StepsOfPeaks(const MemoryBooks& books) : peaks_() {
  for (const MemoryClass routed : kRouted) {
    peaks_[static_cast<size_t>(routed)] = books.peak(routed);
  }
}

void StepsOfPeaks::Begin(Kind /*kind*/) { notes().Note(); }

void StepsOfPeaks::End(Kind kind, const MemoryBooks& books) {
  if (notes().step().empty()) return;
  for (const MemoryClass routed : kRouted) {
    const auto of_class = static_cast<size_t>(routed);
    if (books.peak(routed) <= peaks_[of_class]) continue;
    peaks_[of_class] = books.peak(routed);
    kept_[Index(kind)][of_class] = {.kind = kind, .numbers = notes().step()};
  }
}

std::vector<RoutedStep> StepsOfPeaks::steps() const {
  std::vector<RoutedStep> steps;
  for (const auto& of_kind : kept_) {
    const auto first = std::ssize(steps);
    for (const RoutedStep& step : of_kind) {
      // One step may be that of several classes: a rehearsal has no more steps than the run.
      const bool is_there =
          std::any_of(steps.begin() + first, steps.end(),
                      [&step](const RoutedStep& kept) { return kept.numbers == step.numbers; });
      if (!step.numbers.empty() && !is_there) steps.push_back(step);
    }
  }
  return steps;
}

void RepeatedSteps::Begin(Kind kind) {
  const RoutedStep* last = nullptr;
  int64_t left = ++begun_[Index(kind)];
  for (const RoutedStep& step : steps_) {
    if (step.kind != kind) continue;
    last = &step;
    if (--left == 0) break;
  }
  notes().Give(last == nullptr ? RoutingNotes::Step() : last->numbers);
}

void RepeatedSteps::End(Kind /*kind*/, const MemoryBooks& /*books*/) {}

int64_t CountOf(const std::vector<RoutedStep>& steps, RoutedStep::Kind kind) {
  return std::count_if(steps.begin(), steps.end(),
                       [kind](const RoutedStep& step) { return step.kind == kind; });
}

}  // namespace lockstep
