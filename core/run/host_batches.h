#pragma once

#include "core/data/dataset.h"
#include "core/kernels/kernels.h"
#include "core/tensor/allocator.h"

namespace lockstep {

// Data sets write host memory. Where a rank computes elsewhere, this is the way between: memory for
// them to write, and the copy to the device.
class HostBatches {
 public:
  // The kernels outlive it.
  explicit HostBatches(Kernels& kernels) : kernels_(kernels) {}

  // Host memory: the rank's own where it computes there, else memory that no books of the rank
  // count. Lives as long as this object.
  Allocator& allocator() { return computes_here() ? kernels_.allocator() : beside_; }

  // A batch of allocator()'s memory, in the rank's memory: itself, or a copy.
  Batch Deliver(Batch batch);

 private:
  bool computes_here() { return kernels_.device().type == DeviceType::kCpu; }

  Kernels& kernels_;
  CpuAllocator beside_;
};

}  // namespace lockstep
