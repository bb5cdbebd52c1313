#pragma once

#include <array>
#include <compare>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "core/comm/group_info.h"
#include "core/comm/signature.h"
#include "core/kernels/kernel_call.h"
#include "core/tensor/memory.h"

namespace lockstep {

// A collective or a message of one rank.
struct RecordedCall {
  std::shared_ptr<const GroupInfo> group;  // named after its mesh axis
  Signature signature;
  std::string label;
};

// One thing that a rank's thread does.
struct RecordedTask {
  enum class Kind : uint8_t {
    kKernel,  // runs RecordedStep::kernels[index]
    kCall,    // begins RecordedStep::calls[index]
    kWait,  // waits for the oldest calls[index] that it has begun and not waited for; not recorded
            // for sends
  };
  Kind kind = Kind::kKernel;
  int32_t index = 0;

  friend auto operator<=>(const RecordedTask&, const RecordedTask&) = default;
};

// What a stretch of tasks belongs to.
struct StepPlace {
  enum class Kind : uint8_t {
    kBetween,  // no action: the step before, between and after the runs of the schedule
    kExpect,   // posting the receives of an action
    kAction,   // an action
  };
  Kind kind = Kind::kBetween;
  // The action (strategies/schedules/schedule.h), for kExpect and kAction. `action` is its kind.
  int action = 0, stage = 0, micro_batch = 0;

  friend auto operator<=>(const StepPlace&, const StepPlace&) = default;
};

// Bytes by MemoryClass.
using ClassBytes = std::array<int64_t, kMemoryClasses>;

// The most that is live at a time.
struct PeakBytes {
  ClassBytes classes = {};  // of each class
  int64_t total = 0;        // of all classes together

  // Takes the larger of each.
  void Raise(const PeakBytes& other);
};
PeakBytes PeaksOf(const MemoryBooks& books);

// Consecutive tasks of a rank with the same StepPlace, and the memory they take. All bytes but
// `given_back` and `sent` are relative to what was live when the stretch began.
//
// What a stretch has sent to another stage stays live until a later one takes or sends something
// and gives it back. Which one does depends on the order of the step alone.
struct RecordedStretch {
  StepPlace place;
  std::vector<RecordedTask> tasks = {};
  ClassBytes kept = {};  // live at the end
  PeakBytes peaks = {};  // of a stretch that gives something back: from then on
  bool gives_back = false;
  ClassBytes given_back = {};   // what an earlier stretch had sent
  PeakBytes peaks_before = {};  // until it was given back
  ClassBytes sent = {};         // what is kept until a later stretch gives it back
};

// One training step of one rank, as a rehearsal ran it. Pure data.
struct RecordedStep {
  std::vector<KernelCall> kernels;  // each distinct call once
  std::vector<RecordedCall> calls;  // each distinct call once
  ClassBytes live = {};             // live bytes when the step began
  std::vector<RecordedStretch> stretches;
  PeakBytes validation_peaks = {};  // during a validation after the step
};

// What is live in a rank while it goes through stretches of its step, in any order that its
// schedule allows.
class LiveBytes {
 public:
  explicit LiveBytes(const RecordedStep& step) : live_(step.live) {}

  // Goes through the next stretch, and returns the most that is live within it.
  PeakBytes Pass(const RecordedStretch& stretch);

 private:
  ClassBytes live_;
  ClassBytes sent_ = {};  // of these, what has been sent and not yet given back
};

}  // namespace lockstep
