#pragma once

#include <array>
#include <cstdint>
#include <utility>
#include <vector>

#include "core/autograd/routing_notes.h"
#include "core/report/rank_report.h"
#include "core/tensor/memory.h"

namespace lockstep {

// What a rank does about the routing of each training step, and of each batch that it evaluates:
// notes it (StepsOfPeaks), or repeats what was noted (RepeatedSteps).
class RoutedSteps {
 public:
  using Kind = RoutedStep::Kind;

  virtual ~RoutedSteps() = default;

  // Around a step, whose passes use notes(). `books`: of the rank's memory, behind the step.
  virtual void Begin(Kind kind) = 0;
  virtual void End(Kind kind, const MemoryBooks& books) = 0;

  RoutingNotes& notes() { return notes_; }

 private:
  RoutingNotes notes_;
};

// Keeps the routing of those steps in which a class of memory that depends on it was highest so
// far: one for each class and kind of step.
class StepsOfPeaks final : public RoutedSteps {
 public:
  // `books`: before the first step.
  explicit StepsOfPeaks(const MemoryBooks& books);

  void Begin(Kind kind) override;
  void End(Kind kind, const MemoryBooks& books) override;

  // Those that are kept; none where nothing is routed.
  std::vector<RoutedStep> steps() const;

 private:
  std::array<int64_t, kMemoryClasses> peaks_;
  std::array<std::array<RoutedStep, kMemoryClasses>, 2> kept_;  // by kind
};

// Repeats steps in their order, and the last one of a kind again and again. Where there is none of
// a kind, loads are even.
class RepeatedSteps final : public RoutedSteps {
 public:
  explicit RepeatedSteps(std::vector<RoutedStep> steps) : steps_(std::move(steps)) {}

  void Begin(Kind kind) override;
  void End(Kind kind, const MemoryBooks& books) override;

 private:
  std::vector<RoutedStep> steps_;
  std::array<int64_t, 2> begun_ = {};  // steps of each kind
};

// Number of steps of a kind.
int64_t CountOf(const std::vector<RoutedStep>& steps, RoutedStep::Kind kind);

}  // namespace lockstep
