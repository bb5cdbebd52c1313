#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <set>
#include <shared_mutex>
#include <string>
#include <utility>
#include <vector>

namespace lockstep::emulation {

// Where blocks come from. Kernels and copies of its GPU may use them, and those of GPUs that were
// given access (cudaMemPoolSetAccess): cudaDeviceEnablePeerAccess opens no pool.
struct MemoryPool {
  const int device;
  std::set<int> peers;  // GPUs that have access; under Memory's lock
};

// The memory of all emulated GPUs, and what of the host's is page-locked. Addresses tell GPUs
// apart, as with CUDA's unified addressing, and a freed block's addresses come back late, so that
// who uses them on is found. Thread-safe.
class Memory {
 public:
  static constexpr int64_t kBytesOfDevice = int64_t{8} << 30;
  // What CUDA aligns blocks to.
  static constexpr size_t kAlignment = 256;

  explicit Memory(int devices);
  ~Memory();
  Memory(const Memory&) = delete;
  Memory& operator=(const Memory&) = delete;

  // The pool that a GPU's blocks come from unless a call names another.
  const std::shared_ptr<MemoryPool>& DefaultPool(int device) const;
  void SetAccess(MemoryPool& pool, int peer, bool has_access);

  // Returns addresses for a block of `bytes`, which is used from Begin to End; null where the
  // pool's GPU has less left.
  void* Reserve(const std::shared_ptr<MemoryPool>& pool, size_t bytes);
  // Fills the block with NaN of every width.
  void Begin(void* block);
  // Returns whether the block was in use.
  bool End(void* block);
  int64_t free_bytes(int device) const;
  // The bytes of the block that begins there; -1: none does.
  int64_t BytesOf(const void* block) const;

  // Memory of the host that GPUs may read and write.
  void* PageLock(size_t bytes);
  // Returns whether the block is one of PageLock's.
  bool Unlock(void* block);

  // OK, as an empty string, or why what runs on the GPU may not use these addresses.
  std::string Judge(int device, const void* address, size_t bytes) const;
  // The GPU that the address belongs to; -1: none.
  int DeviceOf(const void* address) const;
  bool IsPageLocked(const void* address, size_t bytes) const;

  // A range that Judge finds nothing wrong with as long as the generation lasts.
  struct Range {
    uintptr_t begin = 0, end = 0;
    uint64_t generation = 0;
  };
  Range RangeAround(int device, const void* address) const;
  uint64_t generation() const { return generation_.load(std::memory_order_relaxed); }

 private:
  enum class State { kReserved, kLive, kFreed };
  struct Block {
    size_t bytes;  // as asked for
    size_t room;
    State state;
    std::shared_ptr<const MemoryPool> pool;
  };
  struct Arena {
    std::shared_ptr<MemoryPool> default_pool;
    char* begin = nullptr;
    size_t used = 0;
    int64_t live_bytes = 0;
    std::map<uintptr_t, Block> blocks;
    std::map<size_t, std::deque<uintptr_t>> freed;  // by room, oldest first
  };
  using Located = std::pair<uintptr_t, const Block*>;

  // The last block of the GPU that begins at or before the address, and where; null: none does.
  Located Find(int device, uintptr_t address) const;

  mutable std::shared_mutex mutex_;
  std::vector<Arena> arenas_;
  std::map<uintptr_t, size_t> page_locked_;
  std::atomic<uint64_t> generation_ = 1;
};

}  // namespace lockstep::emulation
