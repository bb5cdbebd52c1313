// What the interface makes of a call before a backend sees it.

#include "core/comm/communicator.h"

#include <memory>
#include <utility>
#include <vector>

#include "core/tensor/allocator.h"
#include "gtest/gtest.h"

namespace lockstep {
namespace {

// Keeps the calls that it gets.
class Recorder final : public Communicator {
 public:
  Recorder(int size, int rank, Ledger& ledger)
      : Communicator(std::make_shared<const GroupInfo>(
                         GroupInfo{.name = "all", .members = std::vector<int>(size), .rank = rank}),
                     ledger) {}
  absl::StatusOr<std::unique_ptr<Communicator>> Split(int, int, absl::string_view) override {
    return absl::UnimplementedError("");
  }
  void Abort(const absl::Status&) override {}
  absl::Status status() const override { return absl::OkStatus(); }

  std::vector<Call> calls;

 private:
  Work Start(Call call) override {
    calls.push_back(std::move(call));
    return Work();
  }
  void GiveUp(absl::string_view) override {}
};

class CommunicatorTest : public testing::Test {
 protected:
  Tensor Floats(int64_t count) {
    return Tensor::Empty(allocator_, {count}, DType::kF32, MemoryClass::kWorkspace);
  }
  const Call& Last() { return comm_.calls.back(); }
  // Checks a call that needs no waiting.
  static void Over(Work work) { EXPECT_TRUE(work.Wait().ok()); }

  CpuAllocator allocator_;
  Ledger ledger_{1};
  Recorder comm_{3, 1, ledger_};  // rank 1 of 3
};
using CommunicatorDeathTest = CommunicatorTest;

TEST_F(CommunicatorTest, CountsAreThoseOfTheWhole) {
  Over(comm_.AllReduce(Floats(7), Floats(7), ReduceOp::kMax, "x"));
  EXPECT_EQ(Last().signature.count, 7);
  EXPECT_EQ(Last().signature.reduce_op, ReduceOp::kMax);
  EXPECT_EQ(Last().label, "x");
  Over(comm_.AllGather(Floats(7), Floats(21), "x"));
  EXPECT_EQ(Last().signature.count, 21);
  Over(comm_.ReduceScatter(Floats(21), Floats(7), ReduceOp::kSum, "x"));
  EXPECT_EQ(Last().signature.count, 21);
  Over(comm_.Gather(Floats(7), Tensor(), 0, "x"));
  EXPECT_EQ(Last().signature.count, 21);
  Over(comm_.Scatter(Tensor(), Floats(7), 0, "x"));
  EXPECT_EQ(Last().signature.count, 21);
  Over(comm_.AllToAll(Floats(21), Floats(21), "x"));
  EXPECT_EQ(Last().signature.count, 21);
}

TEST_F(CommunicatorTest, EqualCountsAreTheSameAsNone) {
  Over(comm_.AllGather(Floats(7), Floats(21), "x", {7, 7, 7}));
  const Signature with = Last().signature;
  Over(comm_.AllGather(Floats(7), Floats(21), "x"));
  EXPECT_EQ(with, Last().signature);
  Over(comm_.AllGather(Floats(7), Floats(21), "x", {8, 7, 6}));
  EXPECT_NE(with, Last().signature);
}

TEST_F(CommunicatorTest, OutputsOfOthersThanTheRootAreLeftOut) {
  Over(comm_.Reduce(Floats(7), Floats(7), ReduceOp::kSum, 0, "x"));
  EXPECT_FALSE(Last().output.defined());
  Over(comm_.Reduce(Floats(7), Floats(7), ReduceOp::kSum, 1, "x"));
  EXPECT_TRUE(Last().output.defined());
}

TEST_F(CommunicatorTest, InPlaceIsTheOwnPart) {
  const Tensor whole = Floats(48);
  Over(comm_.AllGather(whole.View(16, {16}), whole, "x"));
  Over(comm_.ReduceScatter(whole, whole.View(16, {16}), ReduceOp::kSum, "x"));
}

TEST_F(CommunicatorDeathTest, CallsThatCannotBeRight) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  const Tensor x = Floats(48);
  const Tensor bytes = Tensor::Empty(allocator_, {48}, DType::kU8, MemoryClass::kWorkspace);
  EXPECT_DEATH((void)comm_.AllReduce(x, Floats(47), ReduceOp::kSum, "x"), "all_reduce");
  EXPECT_DEATH((void)comm_.AllReduce(bytes, bytes, ReduceOp::kSum, "x"), "of u8");
  EXPECT_DEATH((void)comm_.AllReduce(x, bytes, ReduceOp::kSum, "x"), "all_reduce");
  EXPECT_DEATH((void)comm_.AllGather(x, Floats(48 * 3 + 1), "x"), "the whole|not equal");
  EXPECT_DEATH((void)comm_.AllGather(x, Floats(144), "x", {40, 50, 54}), "the own chunk");
  EXPECT_DEATH((void)comm_.AllGather(x.View(0, {16}), x, "x"), "overlaps");
  EXPECT_DEATH((void)comm_.AllToAll(Floats(47), Floats(47), "x"), "all_to_all");
  EXPECT_DEATH((void)comm_.Broadcast(x, 3, "x"), "broadcast");
  EXPECT_DEATH((void)comm_.Send(x, -1, "x"), "send");
  EXPECT_DEATH((void)comm_.Scatter(Tensor(), x, 1, "x"), "the root needs an input");
}

}  // namespace
}  // namespace lockstep
