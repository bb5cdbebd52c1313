// Where the time of a step goes, always measured.

#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <utility>
#include <vector>

#include "core/base/clock.h"
#include "core/report/trace.h"

namespace lockstep {

// What a rank's own thread is doing. The time between two scopes is kOther.
enum class Phase {
  kForward,
  kBackward,
  kOptimizer,  // the update, clipping and scaling included
  kData,       // waiting for the next batch
  kBubble,     // a pipeline stage with nothing to do; waits for messages inside belong to it
  kOther,
};
inline constexpr int kPhases = 6;

// "forward", "backward", ...: the names in metrics and traces.
const char* Name(Phase phase);

// The time of one step, or of many added up, in nanoseconds.
struct StepTimes {
  int64_t total = 0;
  std::array<int64_t, kPhases> phases = {};  // by Phase; without what was waited for communication
  int64_t communication_exposed = 0;         // the rank was blocked, waiting for communication
  // Communication was in flight while the rank did something else. Not a part of `total`, which is
  // the sum of the phases and communication_exposed.
  int64_t communication_overlapped = 0;

  int64_t Of(Phase phase) const { return phases[static_cast<size_t>(phase)]; }
  // The phases and both kinds of communication, under their names in reports.
  std::vector<std::pair<const char*, int64_t>> ByName() const;
  StepTimes& operator+=(const StepTimes& other);
};

// Splits the steps of one rank into phases: each nanosecond belongs to one. Costs two calls of the
// clock and of `exposed_nanos` a scope. For the rank's own thread.
//
//   timer.BeginStep(step);
//   { StepTimer::Scope scope(timer, Phase::kForward, micro_batch); ... }
//   StepTimes times = timer.EndStep(in_flight_nanos);
class StepTimer {
 public:
  struct Options {
    // Nanoseconds that the rank has been blocked in communication so far, as its ledger counts.
    std::function<int64_t()> exposed_nanos = [] { return 0; };
    // Gets an event for each step and scope, and is told when steps begin. May be null.
    Trace* trace = nullptr;
    std::function<int64_t()> now_nanos = NowNanos;
  };

  explicit StepTimer(Options options) : options_(std::move(options)) {}

  void BeginStep(int64_t step);

  // Ends the step and returns its times. `in_flight_nanos` is how long the rank had communication
  // in flight during the step; what was not waited for counts as overlapped.
  StepTimes EndStep(int64_t in_flight_nanos);

  // A stretch of one phase. Inside another scope it interrupts that one's phase.
  class Scope {
   public:
    Scope(StepTimer& timer, Phase phase, int64_t micro_batch = -1);
    ~Scope();

    Scope(const Scope&) = delete;
    Scope& operator=(const Scope&) = delete;

   private:
    StepTimer& timer_;
    const Phase outer_;
    const int64_t micro_batch_;
    const int64_t start_nanos_;
  };

 private:
  // Books the time since the last call under the current phase and goes on in `next`. Returns the
  // present time.
  int64_t SwitchTo(Phase next);

  const Options options_;
  StepTimes times_;
  int64_t step_ = 0;
  int64_t step_start_nanos_ = 0;
  Phase phase_ = Phase::kOther;
  int64_t since_nanos_ = 0;    // the last switch
  int64_t since_exposed_ = 0;  // exposed_nanos then
  int64_t waited_nanos_ = 0;   // for communication in this step, in bubbles too
};

}  // namespace lockstep
