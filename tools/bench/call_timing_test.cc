#include "tools/bench/call_timing.h"

#include <string>
#include <vector>

#include "core/base/status.h"
#include "core/comm/launch.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tools/bench/communicator_calls.h"

namespace lockstep {
namespace {

using testing::HasSubstr;

// As CommunicatorCalls, but calls of one operation do nothing.
class LazyCalls final : public RankCalls {
 public:
  LazyCalls(Communicator& comm, Operation skipped) : calls_(comm), skipped_(skipped) {}

  int rank() const override { return calls_.rank(); }
  absl::Status Run(const TimedCall& call, const CallTensors& tensors) override {
    if (call.operation == skipped_) return absl::OkStatus();
    return calls_.Run(call, tensors);
  }
  absl::Status Barrier() override { return calls_.Barrier(); }
  absl::StatusOr<double> Max(double value) override { return calls_.Max(value); }

 private:
  CommunicatorCalls calls_;
  const Operation skipped_;
};

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
        const RankMemory memory = MakeRankMemory(allocator, call.dtype, call.elements);
        CommunicatorCalls calls(rank.comm());
        LS_ASSIGN_OR_RETURN(
            seconds[static_cast<size_t>(rank.rank())],
            CheckAndTimeCall(call, TensorsOf(call, rank.rank(), memory), 1e-4, calls));
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
      const RankMemory memory = MakeRankMemory(allocator, call.dtype, call.elements);
      LazyCalls calls(rank.comm(), call.operation);
      return CheckAndTimeCall(call, TensorsOf(call, rank.rank(), memory), 1e-4, calls).status();
    });
    EXPECT_EQ(status.code(), absl::StatusCode::kInternal) << TimedName(call.operation);
    EXPECT_THAT(std::string(status.message()), HasSubstr("must be"));
  }
}

// One wrong element, anywhere, is enough.
TEST(CallTimingTest, AnErrorNamesTheElement) {
  const TimedCall call = CallOfSize(Operation::kAllGather, DType::kI32, 2, 4096, false);
  CpuAllocator allocator;
  const RankMemory first = MakeRankMemory(allocator, DType::kI32, call.elements);
  const RankMemory second = MakeRankMemory(allocator, DType::kI32, call.elements);
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
