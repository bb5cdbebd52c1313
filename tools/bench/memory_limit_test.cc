#include "tools/bench/memory_limit.h"

#include <cstdint>
#include <vector>

#include "gtest/gtest.h"

namespace lockstep {
namespace {

// Memory for one call: 1 in every input, 0 in every output.
std::vector<CallTensors> MemoryFor(const TimedCall& call, CpuAllocator& allocator) {
  std::vector<CallTensors> memory;
  for (int rank = 0; rank < call.ranks; ++rank) {
    memory.push_back(MakeRankMemory(allocator, call.dtype, call.elements));
    for (int32_t& x : memory.back().input.span<int32_t>()) x = 1;
  }
  return memory;
}

// The loops really move what they are timed for: all of it arrives, as the sum of what was read.
TEST(MemoryLimitTest, AllThatMustMoveMoves) {
  const auto call = CallOfSize(Operation::kAllReduce, DType::kI32, 3, 3 * 12'800, false);
  CpuAllocator allocator;
  const std::vector<CallTensors> memory = MemoryFor(call, allocator);
  EXPECT_GT(MeasureMemorySeconds(call, memory, 1e-3), 0);
  for (const CallTensors& rank : memory) {
    for (const int32_t x : rank.output.span<int32_t>()) ASSERT_EQ(x, 3);
  }
}

double SecondsOf(Operation operation, int64_t bytes, bool in_place) {
  const TimedCall call = CallOfSize(operation, DType::kI32, 2, bytes, in_place);
  CpuAllocator allocator;
  return MeasureMemorySeconds(call, MemoryFor(call, allocator), 1e-3);
}

// Whatever the operation, in place too; sizes that are no whole lines stay within the memory.
TEST(MemoryLimitTest, MoreBytesTakeLonger) {
  const double least = SecondsOf(Operation::kAllReduce, 4, false);
  for (const Operation operation : TimedOperations()) {
    for (const bool in_place : {false, true}) {
      EXPECT_GT(SecondsOf(operation, 1'000'036, in_place), least) << TimedName(operation);
    }
  }
}

}  // namespace
}  // namespace lockstep
