#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "core/cuda/context.h"

namespace lockstep {

// Copies between host memory and a rank's GPU in the order of its stream, by way of page-locked
// memory, from which alone the GPU reads by itself: what is uploaded need not wait for the kernels
// in front of it. One thread at a time.
class CudaStaging {
 public:
  // The context outlives it.
  explicit CudaStaging(const CudaContext& context);
  // Waits for what is on its way.
  ~CudaStaging();
  CudaStaging(const CudaStaging&) = delete;
  CudaStaging& operator=(const CudaStaging&) = delete;

  // Returns as soon as `host` may be changed again.
  void ToDevice(const void* host, void* device, int64_t bytes);
  // Returns when `host` is filled, so it waits for all that is queued.
  void ToHost(const void* device, void* host, int64_t bytes);

 private:
  static constexpr int64_t kSlotBytes = 4 << 20;
  static constexpr int kSlots = 4;

  struct Slot {
    std::byte* memory = nullptr;
    cudaEvent_t done = nullptr;  // the copy that last used it
  };

  // The slot that was used longest ago, once it is free.
  Slot& NextSlot();

  const CudaContext& context_;
  std::array<Slot, kSlots> slots_;
  int next_ = 0;
};

}  // namespace lockstep
