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

// Consecutive tasks of a rank with the same StepPlace, and the memory they take. All bytes are
// relative to what was live when the stretch began.
struct RecordedStretch {
  StepPlace place;
  std::vector<RecordedTask> tasks = {};
  ClassBytes kept = {};    // live at the end
  ClassBytes peaks = {};   // the most of each class
  int64_t peak_total = 0;  // the most of all classes together
};

// One training step of one rank, as a rehearsal ran it. Pure data.
struct RecordedStep {
  std::vector<KernelCall> kernels;  // each distinct call once
  std::vector<RecordedCall> calls;  // each distinct call once
  ClassBytes live = {};             // live bytes when the step began
  std::vector<RecordedStretch> stretches;
  // The most that is live during a validation after the step.
  ClassBytes validation_peaks = {};
  int64_t validation_peak_total = 0;
};

}  // namespace lockstep
