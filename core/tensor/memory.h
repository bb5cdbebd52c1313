#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>

namespace lockstep {

// What a rank's memory is for (contract 7 of the design). Every byte is booked under one class.
enum class MemoryClass {
  kParameters,
  kGradients,
  kOptimizerState,
  kActivations,  // inputs and whatever forward keeps for backward, gradients of activations too
  kCommunication,
  kWorkspace,   // scratch that lives within one operation
  kCheckpoint,  // copies of the state, for checkpoints that are being written
};
inline constexpr int kMemoryClasses = 7;

// "parameters", "gradients", ...: the names used in reports.
const char* Name(MemoryClass memory_class);

// What was live at a moment.
struct MemorySample {
  int64_t nanos = 0;                                    // of NowNanos
  std::array<int64_t, kMemoryClasses> live_bytes = {};  // by MemoryClass
};

// The books of one rank: live bytes, and the highest that each class and their sum have reached.
class MemoryBooks {
 public:
  void Add(MemoryClass memory_class, int64_t bytes);
  void Remove(MemoryClass memory_class, int64_t bytes);

  int64_t live(MemoryClass memory_class) const { return live_[Index(memory_class)]; }
  int64_t peak(MemoryClass memory_class) const { return peak_[Index(memory_class)]; }
  const std::array<int64_t, kMemoryClasses>& live() const { return live_; }
  int64_t live_total() const { return live_total_; }
  int64_t peak_total() const { return peak_total_; }

  // What was live in a class at the moment when the sum was highest: these add up to peak_total().
  int64_t at_peak(MemoryClass memory_class) const { return at_peak_[Index(memory_class)]; }

  // Forgets the peaks: they start again from what is live now.
  void ResetPeaks();

  // "parameters 4.0 MiB, gradients 4.0 MiB, ..." of what is live; for messages.
  std::string ToString() const;

 private:
  static int Index(MemoryClass memory_class) { return static_cast<int>(memory_class); }

  std::array<int64_t, kMemoryClasses> live_{};
  std::array<int64_t, kMemoryClasses> peak_{};
  std::array<int64_t, kMemoryClasses> at_peak_{};
  int64_t live_total_ = 0;
  int64_t peak_total_ = 0;
};

}  // namespace lockstep
