#pragma once

#include <string>

#include "core/cuda/context.h"
#include "core/tensor/allocator.h"

namespace lockstep {

// Memory of a rank's GPU, in the order of the rank's stream: a block that is freed while kernels
// still use it goes to whoever is queued behind them. It stands on a memory pool of CUDA's that
// gives nothing back before its end, so that a step that repeats allocates nothing new.
//
// Whoever uses a block on another stream makes the rank's stream wait for that before freeing it. A
// block for an upload is allocated in the order of the copy stream: the rank's stream waits for the
// upload before it uses or frees the block.
class CudaAllocator final : public Allocator {
 public:
  // The context outlives the allocator. Throws StatusException where the GPU has no memory pools.
  explicit CudaAllocator(CudaContext& context);
  ~CudaAllocator() override;

  Device device() const override { return {DeviceType::kCuda, context_.ordinal()}; }

 protected:
  void* AllocateBlock(int64_t bytes) override;
  void FreeBlock(void* block, int64_t bytes) override;
  void* AllocateUploadBlock(int64_t bytes) override;
  std::string Room() const override;

 private:
  // Null where the GPU has no room.
  void* AllocateOn(cudaStream_t stream, int64_t bytes);

  CudaContext& context_;
  cudaMemPool_t pool_ = nullptr;
};

}  // namespace lockstep
