#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "core/cuda/context.h"

namespace lockstep {

// Copies between host memory and a rank's GPU in the order of its stream, by way of page-locked
// memory, from which alone the GPU reads by itself: the host need not wait for the kernels in front
// of what it uploads. For host memory of any kind; what lies in page-locked memory already goes
// without this (page_locked_allocator.h). One thread at a time.
class CudaStaging {
 public:
  // Batches do not come this way (page_locked_allocator.h), and nothing else is uploaded by the
  // hundred MB while kernels are queued.
  static constexpr int64_t kMostBytes = 64 << 20;

  // The context outlives it. Page-locked memory grows with what is on its way, up to `most_bytes`;
  // behind that, uploads wait for the GPU.
  explicit CudaStaging(const CudaContext& context, int64_t most_bytes = kMostBytes);
  // Waits for what is on its way.
  ~CudaStaging();
  CudaStaging(const CudaStaging&) = delete;
  CudaStaging& operator=(const CudaStaging&) = delete;

  // Returns as soon as `host` may be changed again.
  void ToDevice(const void* host, void* device, int64_t bytes);
  // Returns when `host` is filled, so it waits for all that is queued.
  void ToHost(const void* device, void* host, int64_t bytes);

  // Page-locked memory.
  int64_t bytes() const { return static_cast<int64_t>(slots_.size()) * kSlotBytes; }

 private:
  static constexpr int64_t kSlotBytes = 4 << 20;

  struct Slot {
    std::byte* memory = nullptr;
    cudaEvent_t done = nullptr;  // the copy that last used it
  };

  static Slot NewSlot();
  // The slot that was used longest ago if it is free, else a new one; where there may be no more,
  // the former once it is free.
  Slot& NextSlot();

  const CudaContext& context_;
  const size_t most_slots_;
  std::vector<Slot> slots_;  // a ring, in the order of their last use from next_ on
  size_t next_ = 0;
};

}  // namespace lockstep
