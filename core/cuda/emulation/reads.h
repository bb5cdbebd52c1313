// What kernels of emulated GPUs read, for tests of how much they do.

#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

namespace lockstep::emulation {

// Counts the bytes that kernels read in a range of a GPU's memory for as long as the object lives;
// one object at a time. What libraries and copies read is not counted.
class ReadCounter {
 public:
  ReadCounter(const void* begin, size_t bytes);
  ~ReadCounter();
  ReadCounter(const ReadCounter&) = delete;
  ReadCounter& operator=(const ReadCounter&) = delete;

  int64_t bytes() const { return bytes_; }

  // Tells of a read, as the emulation does for each that a kernel makes.
  static void Note(uintptr_t begin, size_t bytes) {
    ReadCounter* const counter = current.load(std::memory_order_relaxed);
    if (counter != nullptr && begin - counter->begin_ < counter->range_) counter->bytes_ += bytes;
  }

 private:
  static std::atomic<ReadCounter*> current;

  const uintptr_t begin_;
  const size_t range_;
  std::atomic<int64_t> bytes_ = 0;
};

}  // namespace lockstep::emulation
