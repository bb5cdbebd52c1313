#include "core/tensor/allocator.h"

#include <cstdint>
#include <cstring>
#include <set>
#include <string>
#include <vector>

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

TEST(AllocatorTest, ItsHistoryHasWhatWasLiveAfterEachChange) {
  constexpr int kParameters = 0, kActivations = 3;
  CpuAllocator allocator;
  void* before = allocator.Allocate(64, MemoryClass::kParameters);
  EXPECT_TRUE(allocator.StopHistory().empty());
  allocator.StartHistory();
  void* block = allocator.Allocate(100, MemoryClass::kActivations);
  allocator.Rebook(64, MemoryClass::kParameters, MemoryClass::kActivations);
  allocator.Free(block, 100, MemoryClass::kActivations);
  const std::vector<MemorySample> history = allocator.StopHistory();
  allocator.Free(before, 64, MemoryClass::kActivations);

  ASSERT_EQ(history.size(), 4u);
  constexpr int64_t kExpected[][2] = {{64, 0}, {64, 128}, {0, 192}, {0, 64}};
  for (size_t i = 0; i < history.size(); ++i) {
    EXPECT_EQ(history[i].live_bytes[kParameters], kExpected[i][0]) << i;
    EXPECT_EQ(history[i].live_bytes[kActivations], kExpected[i][1]) << i;
    EXPECT_GE(history[i].nanos, history[i == 0 ? 0 : i - 1].nanos);
  }
  EXPECT_TRUE(allocator.StopHistory().empty());
}

TEST(AllocatorTest, AFreedBlockIsHandedOutAgain) {
  CpuAllocator allocator;
  void* first = allocator.Allocate(4096, MemoryClass::kActivations);
  allocator.Free(first, 4096, MemoryClass::kActivations);
  void* second = allocator.Allocate(4096, MemoryClass::kGradients);
  EXPECT_EQ(first, second);
  allocator.Free(second, 4096, MemoryClass::kGradients);
}

// Blocks of sizes that differ from step to step are not kept for nobody.
TEST(AllocatorTest, AFreedBlockServesSizesThatDifferLittle) {
  CpuAllocator allocator;
  for (const int64_t most : {1000, 100'000, 50'000'000}) {
    std::set<void*> blocks;
    for (int64_t i = 0; i < 100; ++i) {
      const int64_t bytes = most - i * most / 400;  // down to three quarters
      void* block = allocator.Allocate(bytes, MemoryClass::kWorkspace);
      std::memset(block, 1, static_cast<size_t>(bytes));
      allocator.Free(block, bytes, MemoryClass::kWorkspace);
      blocks.insert(block);
    }
    EXPECT_LE(blocks.size(), 6u) << most;
  }
  EXPECT_EQ(allocator.books().live_total(), 0);
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
