#include "core/comm/local/local_world.h"

#include <chrono>
#include <cstdint>
#include <future>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "core/base/status.h"
#include "core/comm/launch.h"
#include "core/tensor/allocator.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace lockstep {
namespace {

using ::testing::HasSubstr;

constexpr int64_t kLarge = 1 << 20;  // elements; far beyond what is moved at once
constexpr int64_t kPatient = 8192;   // moved at once by whoever comes by, but not small

Tensor Filled(int64_t count, float value, Allocator& allocator) {
  const Tensor x = Tensor::Empty(allocator, {count}, DType::kF32, MemoryClass::kWorkspace);
  for (float& element : x.span<float>()) element = value;
  return x;
}

// The rank's worker carries on while its thread is elsewhere: rank 0 does not wait before rank 1 is
// done, which needs rank 0's task; also where rank 1 asks again and again instead of waiting.
void ExpectProgress(int64_t count, int calls, int first, bool asks) {
  std::promise<void> called;
  std::promise<void> done;
  const absl::Status status = RunRanks(2, {}, [&](RankHandle& handle) -> absl::Status {
    CpuAllocator allocator;
    const Tensor x = Filled(count, 1, allocator);
    if (handle.rank() != first) called.get_future().wait();
    std::vector<Work> works;
    for (int i = 0; i < calls; ++i) {
      works.push_back(handle.comm().AllReduce(x, x, ReduceOp::kSum, "gradients"));
    }
    if (handle.rank() == first) called.set_value();
    if (handle.rank() == 0) done.get_future().wait();
    while (asks && handle.rank() == 1 && !works.back().Done()) std::this_thread::yield();
    LS_RETURN_IF_ERROR(WaitAll(absl::MakeSpan(works)));
    if (handle.rank() == 1) done.set_value();
    EXPECT_EQ(x.data<float>()[count - 1], 1 << calls);
    return absl::OkStatus();
  });
  EXPECT_TRUE(status.ok()) << status;
}

TEST(LocalWorldTest, CollectivesProgressWithoutWaiting) {
  for (const int64_t count : {kLarge, kPatient}) {
    for (const int calls : {1, 3}) {
      for (const int first : {0, 1}) {  // who calls first
        for (const bool asks : {false, true}) ExpectProgress(count, calls, first, asks);
      }
    }
  }
}

// Rank 2 waits before its peers come, who then are busy elsewhere: the last of them to come sees to
// it that the other one's task is done.
TEST(LocalWorldTest, WhoComesDuringALongWaitUrgesOthers) {
  std::promise<void> called;
  std::promise<void> done;
  const std::shared_future<void> waited = done.get_future().share();
  const absl::Status status = RunRanks(3, {}, [&](RankHandle& handle) -> absl::Status {
    CpuAllocator allocator;
    const Tensor x = Filled(kPatient, 1, allocator);
    // Longer than any polling.
    if (handle.rank() == 1) std::this_thread::sleep_for(std::chrono::milliseconds(20));
    if (handle.rank() == 0) called.get_future().wait();
    Work work = handle.comm().AllReduce(x, x, ReduceOp::kSum, "gradients");
    if (handle.rank() == 1) called.set_value();
    if (handle.rank() != 2) waited.wait();
    LS_RETURN_IF_ERROR(work.Wait());
    if (handle.rank() == 2) done.set_value();
    EXPECT_EQ(x.data<float>()[kPatient - 1], 3);
    return absl::OkStatus();
  });
  EXPECT_TRUE(status.ok()) << status;
}

// Both sides move pieces of both messages, the last of which are shorter.
TEST(LocalWorldTest, LargeMessagesArriveWhole) {
  const absl::Status status = RunRanks(2, {}, [&](RankHandle& handle) -> absl::Status {
    constexpr int64_t kCount = (3 << 20) + 5;
    CpuAllocator allocator;
    const Tensor sent = Filled(kCount, 0, allocator), received = Filled(kCount, -1, allocator);
    const auto value = [](int rank, int64_t i) {
      return static_cast<float>((i * 7 + rank) % 1'000'003);
    };
    for (int64_t i = 0; i < kCount; ++i) sent.data<float>()[i] = value(handle.rank(), i);
    const int peer = 1 - handle.rank();
    Work works[] = {handle.comm().Send(sent, peer, "activations"),
                    handle.comm().Recv(received, peer, "activations")};
    LS_RETURN_IF_ERROR(WaitAll(absl::MakeSpan(works)));
    int64_t wrong = 0;
    for (int64_t i = 0; i < kCount; ++i) wrong += received.data<float>()[i] != value(peer, i);
    EXPECT_EQ(wrong, 0);
    return absl::OkStatus();
  });
  EXPECT_TRUE(status.ok()) << status;
}

// As CollectivesProgressWithoutWaiting for messages, whichever side is busy.
TEST(LocalWorldTest, MessagesProgressWithoutWaiting) {
  for (const int64_t count : {int64_t{1}, kLarge}) {
    for (const int busy : {0, 1}) {
      for (const int first : {0, 1}) {
        std::promise<void> called;
        std::promise<void> done;
        const absl::Status status = RunRanks(2, {}, [&](RankHandle& handle) -> absl::Status {
          CpuAllocator allocator;
          const Tensor x = Filled(count, static_cast<float>(handle.rank()), allocator);
          if (handle.rank() != first) called.get_future().wait();
          Work work = handle.rank() == 0 ? handle.comm().Send(x, 1, "activations")
                                         : handle.comm().Recv(x, 0, "activations");
          if (handle.rank() == first) called.set_value();
          if (handle.rank() == busy) done.get_future().wait();
          LS_RETURN_IF_ERROR(work.Wait());
          if (handle.rank() != busy) done.set_value();
          EXPECT_EQ(x.data<float>()[count - 1], 0);
          return absl::OkStatus();
        });
        EXPECT_TRUE(status.ok()) << status;
      }
    }
  }
}

// Done() becomes true without a wait.
TEST(LocalWorldTest, DoneIsSeen) {
  for (const int64_t count : {int64_t{1}, int64_t{5000}, kLarge}) {
    const absl::Status status = RunRanks(3, {}, [&](RankHandle& handle) -> absl::Status {
      CpuAllocator allocator;
      const Tensor x = Filled(count, 1, allocator);
      Work work = handle.comm().AllReduce(x, x, ReduceOp::kSum, "gradients");
      while (!work.Done()) std::this_thread::yield();
      EXPECT_EQ(x.data<float>()[count / 2], 3);
      return work.Wait();
    });
    EXPECT_TRUE(status.ok()) << status;
  }
}

// The tensors are free again once a wait has ended: no handle is kept.
TEST(LocalWorldTest, HandlesAreGivenBack) {
  const absl::Status status = RunRanks(2, {}, [&](RankHandle& handle) -> absl::Status {
    CpuAllocator allocator;
    const Tensor x = Filled(kLarge, 1, allocator);
    Work sum = handle.comm().AllReduce(x, x, ReduceOp::kSum, "gradients");
    LS_RETURN_IF_ERROR(sum.Wait());
    EXPECT_FALSE(x.shared());
    Work message =
        handle.rank() == 0 ? handle.comm().Send(x, 1, "x") : handle.comm().Recv(x, 0, "x");
    LS_RETURN_IF_ERROR(message.Wait());
    EXPECT_FALSE(x.shared());
    return absl::OkStatus();
  });
  EXPECT_TRUE(status.ok()) << status;
}

TEST(LocalWorldTest, LedgerHasWhatHappened) {
  const absl::Status status = RunRanks(4, {}, [&](RankHandle& handle) -> absl::Status {
    CpuAllocator allocator;
    const Tensor x = Filled(3000, 1, allocator);
    const Tensor chunk = Filled(750, 1, allocator);
    const CommTotals mark = handle.ledger().Mark();
    LS_RETURN_IF_ERROR(handle.comm().AllReduce(x, x, ReduceOp::kSum, "gradients").Wait());
    LS_RETURN_IF_ERROR(handle.comm().ReduceScatter(x, chunk, ReduceOp::kSum, "gradients").Wait());
    LS_RETURN_IF_ERROR(handle.comm().AllGather(chunk, x, "parameters").Wait());
    const CommTotals totals = handle.ledger().Since(mark);
    EXPECT_EQ(totals.Of("gradients").calls, 2);
    EXPECT_EQ(totals.Of("gradients").wire_bytes, 3 * 12'000 * 3 / 4);
    EXPECT_EQ(totals.Of("parameters").bytes, 12'000);

    const std::vector<LedgerEntry> entries = handle.ledger().Recent();
    EXPECT_EQ(entries.size(), 3u);
    for (size_t i = 0; i < entries.size(); ++i) {
      EXPECT_EQ(entries[i].sequence, static_cast<int64_t>(i));
      EXPECT_EQ(entries[i].state, LedgerEntry::State::kDone);
      EXPECT_LE(entries[i].start_nanos, entries[i].end_nanos);
      EXPECT_EQ(entries[i].group->name, "world");
    }
    return absl::OkStatus();
  });
  EXPECT_TRUE(status.ok()) << status;
}

// Without the launcher: a world may go before its communicators, and works after them.
TEST(LocalWorldTest, LifetimesMayEndInAnyOrder) {
  Ledger ledger(0);
  CpuAllocator allocator;
  const Tensor x = Filled(10, 2, allocator);
  auto world = std::make_unique<LocalWorld>(1);
  EXPECT_EQ(world->size(), 1);
  std::unique_ptr<Communicator> comm = world->Join(0, ledger);
  world = nullptr;
  Work work = comm->AllReduce(x, x, ReduceOp::kSum, "alone");
  comm = nullptr;
  EXPECT_TRUE(work.Wait().ok());
}

TEST(LocalWorldTest, AbortBeforeAnybodyJoins) {
  LocalWorld world(2);
  EXPECT_TRUE(world.status().ok());
  world.Abort(1, absl::NotFoundError("no such device"));
  EXPECT_EQ(world.failed_rank(), 1);
  Ledger ledger(0);
  std::unique_ptr<Communicator> comm = world.Join(0, ledger);
  const absl::Status status = comm->Barrier("start").Wait();
  EXPECT_EQ(status.code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(std::string(status.message()), HasSubstr("rank 1: has not come yet"));
  // The first failure stands.
  world.Abort(0, absl::DataLossError("later"));
  EXPECT_EQ(world.failed_rank(), 1);
}

}  // namespace
}  // namespace lockstep
