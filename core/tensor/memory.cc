#include "core/tensor/memory.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "core/base/clock.h"  // FormatBytes
#include "glog/logging.h"

namespace lockstep {

const char* Name(MemoryClass memory_class) {
  switch (memory_class) {
    case MemoryClass::kParameters:
      return "parameters";
    case MemoryClass::kGradients:
      return "gradients";
    case MemoryClass::kOptimizerState:
      return "optimizer_state";
    case MemoryClass::kActivations:
      return "activations";
    case MemoryClass::kCommunication:
      return "communication";
    case MemoryClass::kWorkspace:
      return "workspace";
    case MemoryClass::kCheckpoint:
      return "checkpoint";
  }
  return "?";
}

void MemoryBooks::Add(MemoryClass memory_class, int64_t bytes) {
  const int i = Index(memory_class);
  live_[i] += bytes;
  live_total_ += bytes;
  peak_[i] = std::max(peak_[i], live_[i]);
  if (live_total_ > peak_total_) {
    peak_total_ = live_total_;
    at_peak_ = live_;
  }
}

void MemoryBooks::Remove(MemoryClass memory_class, int64_t bytes) {
  const int i = Index(memory_class);
  CHECK_GE(live_[i], bytes) << Name(memory_class) << ": more is freed than was booked";
  live_[i] -= bytes;
  live_total_ -= bytes;
}

void MemoryBooks::ResetPeaks() {
  peak_ = live_;
  at_peak_ = live_;
  peak_total_ = live_total_;
}

std::string MemoryBooks::ToString() const {
  std::string text;
  for (int i = 0; i < kMemoryClasses; ++i) {
    absl::StrAppend(&text, i ? ", " : "", Name(static_cast<MemoryClass>(i)), " ",
                    FormatBytes(live_[i]));
  }
  return text;
}

}  // namespace lockstep
