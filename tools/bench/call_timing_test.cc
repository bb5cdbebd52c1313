#include "tools/bench/call_timing.h"

#include <string>
#include <vector>

#include "core/base/status.h"
#include "core/comm/launch.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tools/collectives/call_once.h"

namespace lockstep {
namespace {

using testing::HasSubstr;

std::vector<TimedCall> Calls(int ranks, int64_t bytes) {
  std::vector<TimedCall> calls;
  for (const Operation operation : TimedOperations()) {
    for (const DType dtype : {DType::kF32, DType::kF64, DType::kI32, DType::kI64}) {
      for (const bool in_place : {false, true}) {
        calls.push_back(CallOfSize(operation, dtype, ranks, bytes, in_place));
      }
    }
  }
  return calls;
}

// CheckAndTimeCall checks what every operation leaves on every rank.
TEST(CallTimingTest, CallsOfCommunicatorsAreRightAndTakeTime) {
  for (const int ranks : {2, 3}) {
    for (const TimedCall& call : Calls(ranks, 20'000)) {
      CpuAllocator allocator;
      std::vector<double> seconds(static_cast<size_t>(ranks));
      const absl::Status status = RunRanks(ranks, {}, [&](RankHandle& rank) -> absl::Status {
        const CallTensors tensors =
            TensorsOf(call, rank.rank(), MakeRankMemory(allocator, call.dtype, call.elements));
        const auto run = [&] {
          return CallOnce(rank.comm(), call.operation, tensors.input, tensors.output,
                          ReduceOp::kSum, 0, "benchmark");
        };
        LS_ASSIGN_OR_RETURN(
            seconds[static_cast<size_t>(rank.rank())],
            CheckAndTimeCall(call, rank.rank(), tensors, run, 1e-4, MaxOver(rank.comm())));
        return absl::OkStatus();
      });
      ASSERT_TRUE(status.ok()) << status;
      EXPECT_GT(seconds[0], 0) << TimedName(call.operation);
      for (const double other : seconds) EXPECT_EQ(other, seconds[0]);
    }
  }
}

// Whatever the operation: memory that nobody has written is found, even where all or nearly all of
// it is in place.
TEST(CallTimingTest, CallsThatDoNothingAreFound) {
  for (const TimedCall& call : Calls(2, 20'000)) {
    CpuAllocator allocator;
    const absl::Status status = RunRanks(2, {}, [&](RankHandle& rank) -> absl::Status {
      const CallTensors tensors =
          TensorsOf(call, rank.rank(), MakeRankMemory(allocator, call.dtype, call.elements));
      const auto lazy = [] { return absl::OkStatus(); };
      return CheckAndTimeCall(call, rank.rank(), tensors, lazy, 1e-4, MaxOver(rank.comm()))
          .status();
    });
    EXPECT_EQ(status.code(), absl::StatusCode::kInternal) << TimedName(call.operation);
    EXPECT_THAT(std::string(status.message()), HasSubstr("must be"));
  }
}

// One wrong element, anywhere, is enough.
TEST(CallTimingTest, AnErrorNamesTheElement) {
  const TimedCall call = CallOfSize(Operation::kAllGather, DType::kI32, 2, 4096, false);
  CpuAllocator allocator;
  const CallTensors first = MakeRankMemory(allocator, DType::kI32, call.elements);
  const CallTensors second = MakeRankMemory(allocator, DType::kI32, call.elements);
  const CallTensors tensors = TensorsOf(call, 0, first);
  const CallTensors others = TensorsOf(call, 1, second);
  FillTensors(call, 0, tensors);
  FillTensors(call, 1, others);
  int32_t* const output = tensors.output.data<int32_t>();
  for (int64_t i = 0; i < call.part(); ++i) {
    output[i] = tensors.input.data<int32_t>()[i];
    output[call.part() + i] = others.input.data<int32_t>()[i];
  }
  EXPECT_TRUE(CheckOutput(call, 0, tensors).ok());
  output[700] = 99;
  EXPECT_THAT(std::string(CheckOutput(call, 0, tensors).message()),
              HasSubstr("all_gather of i32 x 1024 among 2 ranks: element 700 of rank 0 is 99"));
}

}  // namespace
}  // namespace lockstep
