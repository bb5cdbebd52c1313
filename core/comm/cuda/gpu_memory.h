#pragma once

#include "core/comm/conformance/test_memory.h"
#include "core/cuda/allocator.h"
#include "core/cuda/context.h"
#include "core/cuda/staging.h"

namespace lockstep {

// A rank's memory on its GPU, for the suite of all backends.
class GpuMemory final : public TestMemory {
 public:
  // The context outlives the memory.
  explicit GpuMemory(CudaContext& context)
      : context_(context), allocator_(context), staging_(context) {}

  Allocator& allocator() override { return allocator_; }
  void Write(const Bytes& bytes, const Tensor& tensor) override;
  Bytes Read(const Tensor& tensor) override;

 private:
  CudaContext& context_;
  CudaAllocator allocator_;
  CudaStaging staging_;
};

}  // namespace lockstep
