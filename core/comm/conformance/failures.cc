// Every way in which a call can fail: each ends on every rank, with the names.

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "core/base/status.h"
#include "core/comm/conformance/running_case.h"
#include "core/comm/conformance/suite.h"
#include "gmock/gmock.h"

namespace lockstep {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

// For waits that end because of the timeout; long enough for a rank that only has to get going.
constexpr absl::Duration kShort = absl::Milliseconds(400);
// For waits that end because of something else.
constexpr absl::Duration kLong = absl::Minutes(5);

Tensor Zeros(int64_t count, DType dtype, TestMemory& memory) {
  return memory.TensorOf(Bytes(static_cast<size_t>(count * SizeOf(dtype))), dtype);
}

// A rank that is alive but does not come: it does nothing until the others have given up.
absl::Status StayAway(const Communicator& comm) {
  while (comm.status().ok()) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  return absl::OkStatus();
}

std::string Message(const absl::Status& status) { return std::string(status.message()); }

TEST_P(CommConformance, MissingRankIsNamed) {
  if (max_ranks() < 3) return;
  const std::string missing = "rank 1 did not come to all_reduce " + Number(1);
  for (const int64_t count : {4, 100'000}) {
    const absl::Status status = Run(3, kShort, [&, count](RankUnderTest& handle) -> absl::Status {
      TestMemory& memory = handle.memory();
      const Tensor x = Zeros(count, DType::kF32, memory);
      LS_RETURN_IF_ERROR(handle.comm().Broadcast(x, 0, "parameters").Wait());
      if (handle.rank() == 1) return StayAway(handle.comm());
      const absl::Status error = handle.comm().AllReduce(x, x, ReduceOp::kSum, "gradients").Wait();
      EXPECT_EQ(error.code(), absl::StatusCode::kDeadlineExceeded);
      EXPECT_THAT(
          Message(error),
          AllOf(HasSubstr(absl::StrCat(missing, " of 'world' [0, 1, 2]")),
                HasSubstr("ranks 0, 2 called"), HasSubstr("400 ms"), HasSubstr("\"gradients\""),
                HasSubstr("Last calls: rank 0: all_reduce " + Number(1)),
                HasSubstr("rank 1: broadcast #"),
                HasSubstr(absl::StrCat("rank ", handle.rank(), ", all_reduce ", Number(1)))));
      // For good, and at once.
      const absl::Status later = handle.comm().Barrier("later").Wait();
      EXPECT_THAT(Message(later), HasSubstr(missing));
      return error;
    });
    EXPECT_THAT(Message(status), HasSubstr(missing));
  }
}

TEST_P(CommConformance, CycleOfWaitsEnds) {
  if (max_ranks() < 2) return;
  const absl::Status status = Run(2, kShort, [&](RankUnderTest& handle) -> absl::Status {
    LS_ASSIGN_OR_RETURN(std::unique_ptr<Communicator> a, handle.comm().Split(0, 0, "a"));
    LS_ASSIGN_OR_RETURN(std::unique_ptr<Communicator> b, handle.comm().Split(0, 0, "b"));
    const absl::Status error = (handle.rank() == 0 ? a : b)->Barrier("first").Wait();
    EXPECT_EQ(error.code(), absl::StatusCode::kDeadlineExceeded);
    EXPECT_THAT(Message(error), AllOf(HasSubstr("rank 0: barrier " + Number(0) + " of 'a'"),
                                      HasSubstr("rank 1: barrier " + Number(0) + " of 'b'")));
    return error;
  });
  EXPECT_EQ(status.code(), absl::StatusCode::kDeadlineExceeded);
}

// The calls that rank 1 makes where the others make `usual`, and what the error must show of both.
struct Mismatch {
  std::string name;
  std::function<Work(Communicator&, const Tensor&)> usual;
  std::function<Work(Communicator&, const Tensor&)> other;
  std::string usual_text;
  std::string other_text;
};

std::vector<Mismatch> Mismatches() {
  const auto all_reduce = [](Communicator& comm, const Tensor& x) {
    return comm.AllReduce(x, x, ReduceOp::kSum, "gradients");
  };
  const auto half_of = [](const Tensor& x) { return x.View(0, {x.elements() / 2}); };
  const std::string text = "all_reduce (f32 x ";
  return {
      {"operation", all_reduce,
       [](Communicator& comm, const Tensor& x) { return comm.Broadcast(x, 0, "parameters"); }, text,
       "broadcast (f32 x "},
      {"barrier", all_reduce, [](Communicator& comm, const Tensor&) { return comm.Barrier("end"); },
       text, "barrier (\"end\")"},
      {"size", all_reduce,
       [=](Communicator& comm, const Tensor& x) {
         return comm.AllReduce(half_of(x), half_of(x), ReduceOp::kSum, "gradients");
       },
       text, text},
      {"dtype", all_reduce,
       [](Communicator& comm, const Tensor& x) {
         const Tensor y =
             Tensor::Empty(x.allocator(), {x.elements()}, DType::kI32, MemoryClass::kWorkspace);
         return comm.AllReduce(y, y, ReduceOp::kSum, "gradients");
       },
       text, "all_reduce (i32 x "},
      {"reduction", all_reduce,
       [](Communicator& comm, const Tensor& x) {
         return comm.AllReduce(x, x, ReduceOp::kMax, "gradients");
       },
       "sum", "max"},
      {"root", [](Communicator& comm, const Tensor& x) { return comm.Broadcast(x, 0, "p"); },
       [](Communicator& comm, const Tensor& x) { return comm.Broadcast(x, 1, "p"); }, "root 0",
       "root 1"},
      {"chunks",
       [](Communicator& comm, const Tensor& x) {
         const Tensor whole =
             Tensor::Empty(x.allocator(), {3 * x.elements()}, DType::kF32, MemoryClass::kWorkspace);
         return comm.AllGather(x, whole, "p");
       },
       [](Communicator& comm, const Tensor& x) {
         const int64_t n = x.elements();
         const Tensor whole =
             Tensor::Empty(x.allocator(), {3 * n}, DType::kF32, MemoryClass::kWorkspace);
         return comm.AllGather(x, whole, "p", {n + 1, n, n - 1});
       },
       "all_gather (f32 x ", "+"},
  };
}

TEST_P(CommConformance, DifferentCallsAreShownToAll) {
  if (max_ranks() < 3) return;
  const std::string disagree = "disagree on call " + Number(1);
  for (const Mismatch& mismatch : Mismatches()) {
    for (const int64_t count : {32, 100'000}) {
      SCOPED_TRACE(absl::StrCat(mismatch.name, ", ", count));
      const absl::Status status = Run(3, kLong, [&](RankUnderTest& handle) -> absl::Status {
        TestMemory& memory = handle.memory();
        LS_RETURN_IF_ERROR(handle.comm().Barrier("start").Wait());
        const Tensor x = Zeros(count, DType::kF32, memory);
        const absl::Status error =
            (handle.rank() == 1 ? mismatch.other : mismatch.usual)(handle.comm(), x).Wait();
        EXPECT_EQ(error.code(), absl::StatusCode::kFailedPrecondition) << error;
        EXPECT_THAT(Message(error),
                    AllOf(HasSubstr(disagree + " of 'world' [0, 1, 2]"),
                          HasSubstr("ranks 0, 2 called "), HasSubstr("rank 1 called "),
                          HasSubstr(mismatch.usual_text), HasSubstr(mismatch.other_text)));
        return error;
      });
      EXPECT_THAT(Message(status), HasSubstr(disagree));
    }
  }
}

TEST_P(CommConformance, WrongOrderIsShown) {
  if (max_ranks() < 2) return;
  const absl::Status status = Run(2, kLong, [](RankUnderTest& handle) -> absl::Status {
    TestMemory& memory = handle.memory();
    const Tensor x = Zeros(100, DType::kF32, memory);
    const Tensor y = Zeros(100, DType::kF32, memory);
    std::vector<Work> works;
    if (handle.rank() == 0) {
      works.push_back(handle.comm().AllReduce(x, x, ReduceOp::kSum, "x"));
      works.push_back(handle.comm().Broadcast(y, 0, "y"));
    } else {
      works.push_back(handle.comm().Broadcast(y, 0, "y"));
      works.push_back(handle.comm().AllReduce(x, x, ReduceOp::kSum, "x"));
    }
    for (Work& work : works) {
      EXPECT_THAT(Message(work.Wait()),
                  AllOf(HasSubstr("rank 0 called all_reduce (f32 x 100, sum, \"x\")"),
                        HasSubstr("rank 1 called broadcast (f32 x 100, root 0, \"y\")")));
    }
    return absl::OkStatus();
  });
  EXPECT_TRUE(status.ok()) << status;
}

TEST_P(CommConformance, MessagesOfDifferentSizeAreShownToBoth) {
  if (max_ranks() < 2) return;
  for (const int first : {0, 1}) {  // who calls first
    const absl::Status status = Run(2, kLong, [first](RankUnderTest& handle) -> absl::Status {
      TestMemory& memory = handle.memory();
      const Tensor x = Zeros(4 + handle.rank(), DType::kF32, memory);
      Work work;
      const auto call = [&] {
        work = handle.rank() == 0 ? handle.comm().Send(x, 1, "activations")
                                  : handle.comm().Recv(x, 0, "activations");
      };
      if (handle.rank() == first) call();
      LS_RETURN_IF_ERROR(handle.comm().Barrier("order").Wait());
      if (handle.rank() != first) call();
      const absl::Status error = work.Wait();
      EXPECT_THAT(Message(error),
                  AllOf(HasSubstr("disagree on message #0 from rank 0 to rank 1"),
                        HasSubstr("rank 0 called send (f32 x 4, to 1, \"activations\")"),
                        HasSubstr("rank 1 called recv (f32 x 5, from 0, \"activations\")")));
      return absl::OkStatus();
    });
    EXPECT_TRUE(status.ok()) << status;
  }
}

TEST_P(CommConformance, MessageWithoutPeerIsNamed) {
  if (max_ranks() < 2) return;
  for (const bool sends : {true, false}) {
    (void)Run(2, kShort, [&, sends](RankUnderTest& handle) -> absl::Status {
      if (handle.rank() == 1) return StayAway(handle.comm());
      TestMemory& memory = handle.memory();
      const Tensor x = Zeros(4, DType::kF32, memory);
      const absl::Status error =
          (sends ? handle.comm().Send(x, 1, "x") : handle.comm().Recv(x, 1, "x")).Wait();
      EXPECT_EQ(error.code(), absl::StatusCode::kDeadlineExceeded);
      EXPECT_THAT(Message(error),
                  AllOf(HasSubstr("rank 1 did not come to"), HasSubstr(sends ? "send" : "recv"),
                        HasSubstr("rank 1: " + NoCall())));
      return error;
    });
  }
}

TEST_P(CommConformance, AbortEndsAllWaits) {
  if (max_ranks() < 4) return;
  for (const int64_t count : {4, 100'000}) {
    const absl::Status status = Run(4, kLong, [count](RankUnderTest& handle) -> absl::Status {
      TestMemory& memory = handle.memory();
      const Tensor x = Zeros(count, DType::kF32, memory);
      // A group that the failing rank does not belong to.
      LS_ASSIGN_OR_RETURN(std::unique_ptr<Communicator> pair,
                          handle.comm().Split(handle.rank() / 2, 0, "pair"));
      if (handle.rank() == 1) return absl::DataLossError("the file is cut short");
      absl::Status error;
      if (handle.rank() == 0) error = handle.comm().Recv(x, 1, "x").Wait();
      if (handle.rank() == 2) error = handle.comm().AllReduce(x, x, ReduceOp::kSum, "x").Wait();
      if (handle.rank() == 3) error = pair->Broadcast(x, 0, "x").Wait();
      EXPECT_EQ(error.code(), absl::StatusCode::kDataLoss) << error;
      EXPECT_THAT(Message(error), AllOf(HasSubstr("rank 1 failed: the file is cut short"),
                                        HasSubstr("Last calls:")));
      EXPECT_EQ(handle.comm().status().code(), absl::StatusCode::kDataLoss);
      EXPECT_EQ(pair->Barrier("later").Wait().code(), absl::StatusCode::kDataLoss);
      return error;
    });
    EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss);
    EXPECT_EQ(Message(status), "rank 1: the file is cut short");
  }
}

TEST_P(CommConformance, ExceptionAmidCallsIsTheFirstCause) {
  if (max_ranks() < 3) return;
  const absl::Status status = Run(3, kLong, [](RankUnderTest& handle) -> absl::Status {
    TestMemory& memory = handle.memory();
    const Tensor x = Zeros(100'000, DType::kF32, memory);
    Work in_flight = handle.comm().AllReduce(x, x, ReduceOp::kSum, "gradients");
    if (handle.rank() == 2) throw std::runtime_error("no convergence");
    absl::Status error = in_flight.Wait();
    if (error.ok()) error = handle.comm().Barrier("after").Wait();
    EXPECT_FALSE(error.ok());
    EXPECT_THAT(Message(error), HasSubstr("rank 2"));
    return error;
  });
  EXPECT_THAT(Message(status), AllOf(HasSubstr("rank 2: "), HasSubstr("no convergence")));
}

TEST_P(CommConformance, RankThatLeavesIsNamed) {
  if (max_ranks() < 3) return;
  const absl::Status status = Run(3, kLong, [](RankUnderTest& handle) -> absl::Status {
    TestMemory& memory = handle.memory();
    const Tensor x = Zeros(10, DType::kF32, memory);
    LS_RETURN_IF_ERROR(handle.comm().Broadcast(x, 1, "parameters").Wait());
    if (handle.rank() == 0) return absl::OkStatus();
    const absl::Status error = handle.rank() == 1 ? handle.comm().Barrier("end").Wait()
                                                  : handle.comm().Recv(x, 0, "activations").Wait();
    EXPECT_EQ(error.code(), absl::StatusCode::kAborted);
    EXPECT_THAT(Message(error), AllOf(HasSubstr("rank 0 has left and will not come to "),
                                      HasSubstr("rank 0: has left; last: broadcast #")));
    return error;
  });
  EXPECT_THAT(Message(status), HasSubstr("rank 0 has left"));
}

TEST_P(CommConformance, RankMayLeaveWhenNobodyNeedsIt) {
  if (max_ranks() < 3) return;
  RunOk(3, [](RankUnderTest& handle) -> absl::Status {
    LS_ASSIGN_OR_RETURN(std::unique_ptr<Communicator> group,
                        handle.comm().Split(handle.rank() == 0 ? 0 : 1, 0, "rest"));
    if (handle.rank() == 0) return absl::OkStatus();
    for (int i = 0; i < 100; ++i) LS_RETURN_IF_ERROR(group->Barrier("rest").Wait());
    return absl::OkStatus();
  });
}

TEST_P(CommConformance, DroppedWorkFailsAll) {
  if (max_ranks() < 2) return;
  for (const int64_t count : {4, 100'000}) {
    (void)Run(2, kLong, [&, count](RankUnderTest& handle) -> absl::Status {
      TestMemory& memory = handle.memory();
      const Tensor x = Zeros(count, DType::kF32, memory);
      if (handle.rank() == 0) {
        { const Work dropped = handle.comm().AllReduce(x, x, ReduceOp::kSum, "gradients"); }
        return StayAway(handle.comm());
      }
      absl::Status error = handle.comm().AllReduce(x, x, ReduceOp::kSum, "gradients").Wait();
      if (error.ok()) error = handle.comm().Barrier("after").Wait();
      EXPECT_THAT(Message(error), HasSubstr("rank 0 gave up all_reduce " + Number(0)));
      return error;
    });
  }
}

TEST_P(CommConformance, SplitWithTwoNamesIsRefused) {
  if (max_ranks() < 2) return;
  (void)Run(2, kLong, [](RankUnderTest& handle) -> absl::Status {
    auto group = handle.comm().Split(0, 0, handle.rank() == 0 ? "dp" : "tp");
    // Whoever comes first gets a group, but one that fails.
    const absl::Status error = group.ok() ? (*group)->Barrier("use").Wait() : group.status();
    EXPECT_THAT(Message(error), AllOf(HasSubstr("'dp'"), HasSubstr("'tp'")));
    return error;
  });
}

// Ranks free their memory as soon as a wait has ended, whatever its peers are doing: run under ASan
// and TSan, this shows that nobody then touches it any more.
TEST_P(CommConformance, MemoryIsFreeAfterAFailure) {
  const int ranks = std::min(4, max_ranks());
  for (int round = 0; round < 20; ++round) {
    (void)Run(ranks, kLong, [round](RankUnderTest& handle) -> absl::Status {
      const int failing = round % handle.size();
      TestMemory& memory = handle.memory();
      for (int call = 0;; ++call) {
        const Tensor x = Zeros(60'000, DType::kF32, memory);
        const Tensor message = Zeros(60'000, DType::kF32, memory);
        Work sum = handle.comm().AllReduce(x, x, ReduceOp::kSum, "x");
        Work send = handle.comm().Send(message, (handle.rank() + 1) % handle.size(), "ring");
        const Tensor got = Zeros(60'000, DType::kF32, memory);
        Work recv =
            handle.comm().Recv(got, (handle.rank() + handle.size() - 1) % handle.size(), "ring");
        if (handle.rank() == failing && call == round % 3) return absl::DataLossError("over");
        LS_RETURN_IF_ERROR(sum.Wait());
        LS_RETURN_IF_ERROR(send.Wait());
        LS_RETURN_IF_ERROR(recv.Wait());
      }
    });
  }
}

}  // namespace
}  // namespace lockstep
