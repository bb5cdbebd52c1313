#include "core/tensor/rehearsal_allocator.h"

#include <cmath>
#include <cstdint>
#include <set>

#include "gtest/gtest.h"

namespace lockstep {
namespace {

// A machine has no such memory; the reserved addresses hold it.
TEST(RehearsalAllocatorTest, HandsOutMoreThanThereIs) {
  RehearsalAllocator allocator;
  constexpr int64_t kBytes = int64_t{100} << 30;
  std::set<char*> blocks;
  for (int i = 0; i < 8; ++i) {
    auto* const block = static_cast<char*>(allocator.Allocate(kBytes, MemoryClass::kActivations));
    ASSERT_NE(block, nullptr);
    EXPECT_EQ(reinterpret_cast<uintptr_t>(block) % kAlignment, 0u);
    block[0] = block[kBytes - 1] = 1;
    for (const char* other : blocks) EXPECT_GE(std::abs(other - block), kBytes);
    blocks.insert(block);
  }
  EXPECT_EQ(allocator.books().live_total(), 8 * kBytes);
  EXPECT_EQ(allocator.books().peak(MemoryClass::kActivations), 8 * kBytes);
  for (char* const block : blocks) allocator.Free(block, kBytes, MemoryClass::kActivations);
  EXPECT_EQ(allocator.books().live_total(), 0);
}

TEST(RehearsalAllocatorTest, HandsOutFreedBlocksAgain) {
  RehearsalAllocator allocator;
  void* const block = allocator.Allocate(1000, MemoryClass::kWorkspace);
  allocator.Free(block, 1000, MemoryClass::kWorkspace);
  EXPECT_EQ(allocator.Allocate(1000, MemoryClass::kGradients), block);
  EXPECT_NE(allocator.Allocate(1000, MemoryClass::kGradients), block);
}

}  // namespace
}  // namespace lockstep
