#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <mutex>
#include <string>
#include <vector>

#include "core/cuda/context.h"
#include "core/tensor/allocator.h"

namespace lockstep {

// Page-locked memory of the host, which a rank's GPU reads by itself: an upload from such a block
// runs on the context's copy stream, beside kernels, and nobody waits for it on the host.
//
//   std::byte* batch = allocator.Allocate(bytes, MemoryClass::kWorkspace);
//   Write(batch);                                // by any thread
//   allocator.Upload(batch, device, bytes);
//   allocator.Free(batch, bytes, MemoryClass::kWorkspace);
//
// Freed blocks are kept and handed out again for the same size, because page-locking is slow and
// can hold the GPU up; but never while an upload still reads them. Where uploads from kMostInFlight
// freed blocks of a size go on, Allocate waits for one of them in place of page-locking more: of
// each size there are at most kMostInFlight blocks more than were ever live.
//
// Books and limit are its own, and count live blocks. Thread-safe.
class PageLockedAllocator final : public Allocator {
 public:
  static constexpr int kMostInFlight = 2;

  // The context outlives the allocator.
  explicit PageLockedAllocator(const CudaContext& context) : context_(context) {}
  // Waits for uploads.
  ~PageLockedAllocator() override;
  PageLockedAllocator(const PageLockedAllocator&) = delete;
  PageLockedAllocator& operator=(const PageLockedAllocator&) = delete;

  Device device() const override { return {DeviceType::kCpu, 0}; }

  // Queues a copy of `bytes` bytes, which lie in a live block, to `device`: memory of the GPU that
  // was allocated for an upload (FirstUse::kUpload). What is queued on the context's stream from
  // now on comes behind the copy. The block may be freed at once, but not written again before
  // that.
  void Upload(const void* host, void* device, int64_t bytes);

  // All memory that is page-locked: live blocks, and freed ones that are kept.
  int64_t page_locked_bytes() const;

 protected:
  void* AllocateBlock(int64_t bytes) override;
  void FreeBlock(void* block, int64_t bytes) override;
  std::string Room() const override { return "and the machine has no more to be page-locked"; }

 private:
  struct Block {
    std::byte* memory = nullptr;
    int64_t bytes = 0;
    cudaEvent_t uploaded = nullptr;  // behind the last upload from it
  };

  // With memory null where the machine has no room.
  static Block NewBlock(int64_t bytes);
  static bool IsUploaded(const Block& block);

  const CudaContext& context_;
  mutable std::mutex blocks_mutex_;         // of what follows
  std::map<const std::byte*, Block> live_;  // by memory
  std::vector<Block> kept_;                 // freed, the oldest first; has room for all blocks
};

}  // namespace lockstep
