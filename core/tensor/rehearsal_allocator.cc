#include "core/tensor/rehearsal_allocator.h"

#include <sys/mman.h>

#include <algorithm>

namespace lockstep {
namespace {

// Small beside the 2^47 addresses of a process, which may rehearse a thousand ranks at once.
constexpr int64_t kMappingBytes = int64_t{16} << 30;

}  // namespace

RehearsalAllocator::~RehearsalAllocator() {
  for (const Mapping& mapping : mappings_) munmap(mapping.begin, mapping.bytes);
}

void* RehearsalAllocator::AllocateBlock(int64_t bytes) {
  std::vector<void*>& kept = free_blocks_[bytes];
  if (!kept.empty()) {
    void* const block = kept.back();
    kept.pop_back();
    return block;
  }
  if (mappings_.empty() || used_ + bytes > mappings_.back().bytes) {
    const int64_t size = std::max(kMappingBytes, bytes);
    void* const begin = mmap(nullptr, size, PROT_READ | PROT_WRITE,
                             MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (begin == MAP_FAILED) return nullptr;
    // The few that are written are small: a huge page each would be most of the memory.
    madvise(begin, size, MADV_NOHUGEPAGE);
    mappings_.push_back({static_cast<char*>(begin), size});
    used_ = 0;
  }
  void* const block = mappings_.back().begin + used_;
  used_ += bytes;
  return block;
}

void RehearsalAllocator::FreeBlock(void* block, int64_t bytes) {
  free_blocks_[bytes].push_back(block);
}

}  // namespace lockstep
