#include "core/tensor/allocator.h"

#include <cstdint>
#include <string>

#include "core/base/status.h"
#include "gtest/gtest.h"

namespace lockstep {
namespace {

TEST(AllocatorTest, BlocksStartOnTheBoundary) {
  CpuAllocator allocator;
  for (int64_t bytes : {1, 63, 64, 65, 4096, 5 << 20}) {
    void* block = allocator.Allocate(bytes, MemoryClass::kWorkspace);
    EXPECT_EQ(reinterpret_cast<uintptr_t>(block) % kAlignment, 0u) << bytes;
    allocator.Free(block, bytes, MemoryClass::kWorkspace);
  }
}

TEST(AllocatorTest, BooksLiveAndPeakByClass) {
  CpuAllocator allocator;
  void* a = allocator.Allocate(1000, MemoryClass::kParameters);
  void* b = allocator.Allocate(640, MemoryClass::kActivations);
  EXPECT_EQ(allocator.books().live(MemoryClass::kParameters), 1024);
  EXPECT_EQ(allocator.books().live(MemoryClass::kActivations), 640);
  EXPECT_EQ(allocator.books().live_total(), 1664);
  allocator.Free(b, 640, MemoryClass::kActivations);
  EXPECT_EQ(allocator.books().live_total(), 1024);
  EXPECT_EQ(allocator.books().peak_total(), 1664);
  EXPECT_EQ(allocator.books().peak(MemoryClass::kActivations), 640);
  EXPECT_EQ(allocator.books().at_peak(MemoryClass::kActivations), 640);

  allocator.Rebook(1000, MemoryClass::kParameters, MemoryClass::kCommunication);
  EXPECT_EQ(allocator.books().live(MemoryClass::kParameters), 0);
  EXPECT_EQ(allocator.books().live(MemoryClass::kCommunication), 1024);
  allocator.ResetPeaks();
  EXPECT_EQ(allocator.books().peak_total(), 1024);
  EXPECT_EQ(allocator.books().peak(MemoryClass::kActivations), 0);
  allocator.Free(a, 1000, MemoryClass::kCommunication);
}

TEST(AllocatorTest, AFreedBlockIsHandedOutAgain) {
  CpuAllocator allocator;
  void* first = allocator.Allocate(4096, MemoryClass::kActivations);
  allocator.Free(first, 4096, MemoryClass::kActivations);
  void* second = allocator.Allocate(4096, MemoryClass::kGradients);
  EXPECT_EQ(first, second);
  allocator.Free(second, 4096, MemoryClass::kGradients);
}

TEST(AllocatorTest, TheLimitIsKeptAndTheMessageSaysWhatIsHeld) {
  CpuAllocator allocator;
  allocator.set_limit(1 << 20);
  void* block = allocator.Allocate(1 << 19, MemoryClass::kParameters);
  try {
    allocator.Allocate((1 << 19) + 1, MemoryClass::kOptimizerState);
    FAIL() << "the limit was passed";
  } catch (const StatusException& error) {
    EXPECT_TRUE(absl::IsResourceExhausted(error.status()));
    const std::string message(error.status().message());
    EXPECT_NE(message.find("512.1 KiB asked for optimizer_state"), std::string::npos) << message;
    EXPECT_NE(message.find("limit of 1.0 MiB"), std::string::npos) << message;
    EXPECT_NE(message.find("parameters 512.0 KiB"), std::string::npos) << message;
  }
  EXPECT_EQ(allocator.books().live_total(), 1 << 19);
  void* rest = allocator.Allocate(1 << 19, MemoryClass::kOptimizerState);
  EXPECT_NE(rest, nullptr);
  allocator.Free(rest, 1 << 19, MemoryClass::kOptimizerState);
  allocator.Free(block, 1 << 19, MemoryClass::kParameters);
}

}  // namespace
}  // namespace lockstep
