#pragma once

#include <cstdint>
#include <map>
#include <vector>

#include "core/tensor/allocator.h"

namespace lockstep {

// Host memory for rehearsals, whose tensors are made and, but for a few, never written. A block is
// an address in a reserved mapping, which takes pages only where somebody writes: a rank of 100 GB
// takes a few MB. Blocks are read as zeros at first.
class RehearsalAllocator final : public Allocator {
 public:
  ~RehearsalAllocator() override;
  Device device() const override { return {DeviceType::kCpu, 0}; }

 protected:
  void* AllocateBlock(int64_t bytes) override;
  void FreeBlock(void* block, int64_t bytes) override;

 private:
  struct Mapping {
    char* begin;
    int64_t bytes;
  };

  std::vector<Mapping> mappings_;
  int64_t used_ = 0;                                   // bytes of the last mapping
  std::map<int64_t, std::vector<void*>> free_blocks_;  // by size
};

}  // namespace lockstep
