// Send and recv, barriers, and sub-groups.

#include <chrono>
#include <cstdint>
#include <deque>
#include <memory>
#include <thread>
#include <vector>

#include "absl/status/status.h"
#include "core/base/clock.h"
#include "core/base/status.h"
#include "core/comm/conformance/running_case.h"
#include "core/comm/conformance/suite.h"
#include "core/tensor/allocator.h"
#include "gmock/gmock.h"

namespace lockstep {
namespace {

using ::testing::ElementsAre;

// Every message of these tests says who sent it to whom, and which one it is.
Case Message(int from, int to, int64_t number, int64_t count) {
  return {.counts = {count}, .seed = static_cast<uint64_t>((number * 64 + from) * 64 + to)};
}

Tensor SendTensor(int from, int to, int64_t number, int64_t count, TestMemory& memory) {
  return memory.TensorOf(InputOf(Message(from, to, number, count), 0), DType::kF32);
}

Tensor RecvTensor(int64_t count, TestMemory& memory) { return memory.Empty(count, DType::kF32); }

void ExpectMessage(TestMemory& memory, const Tensor& tensor, int from, int to, int64_t number) {
  EXPECT_TRUE(memory.Read(tensor) == InputOf(Message(from, to, number, tensor.elements()), 0))
      << "message " << number << " from " << from << " to " << to;
}

constexpr int64_t kCounts[] = {0, 1, 900, 50'000};

// Everybody sends to everybody before receiving anything: sends block nothing.
TEST_P(CommConformance, SendsBeforeReceives) {
  for (int ranks = 1; ranks <= max_ranks(); ++ranks) {
    RunOk(ranks, [](RankUnderTest& handle) -> absl::Status {
      TestMemory& memory = handle.memory();
      const int self = handle.rank();
      std::vector<Work> works;
      for (int to = 0; to < handle.size(); ++to) {
        for (int64_t i = 0; i < 4; ++i) {
          works.push_back(
              handle.comm().Send(SendTensor(self, to, i, kCounts[i], memory), to, "activations"));
        }
      }
      for (int from = 0; from < handle.size(); ++from) {
        for (int64_t i = 0; i < 4; ++i) {
          const Tensor tensor = RecvTensor(kCounts[i], memory);
          LS_RETURN_IF_ERROR(handle.comm().Recv(tensor, from, "activations").Wait());
          ExpectMessage(memory, tensor, from, self, i);
        }
      }
      return WaitAll(absl::MakeSpan(works));
    });
  }
}

// Some routes are connected before there are messages, some twice, and some not.
TEST_P(CommConformance, RoutesMayBeConnectedFirst) {
  for (int ranks = 1; ranks <= max_ranks(); ++ranks) {
    RunOk(ranks, [](RankUnderTest& handle) -> absl::Status {
      const int n = handle.size(), self = handle.rank();
      const int next = (self + 1) % n, previous = (self + n - 1) % n;
      std::vector<Communicator::Route> ring;
      for (int from = n - 1; from >= 0; --from) ring.push_back({from, (from + 1) % n});
      LS_RETURN_IF_ERROR(handle.comm().ConnectRoutes(ring));
      ring.push_back({0, n - 1});
      LS_RETURN_IF_ERROR(handle.comm().ConnectRoutes(ring));
      TestMemory& memory = handle.memory();
      std::vector<Work> works;
      for (const int to : {next, previous}) {
        works.push_back(handle.comm().Send(SendTensor(self, to, 0, 900, memory), to, "ring"));
      }
      for (const int from : {previous, next}) {
        const Tensor tensor = RecvTensor(900, memory);
        LS_RETURN_IF_ERROR(handle.comm().Recv(tensor, from, "ring").Wait());
        ExpectMessage(memory, tensor, from, self, 0);
      }
      return WaitAll(absl::MakeSpan(works));
    });
  }
}

// The other way round: all receives are posted, and waited for in reverse order.
TEST_P(CommConformance, ReceivesBeforeSends) {
  for (int ranks = 1; ranks <= max_ranks(); ++ranks) {
    RunOk(ranks, [](RankUnderTest& handle) -> absl::Status {
      TestMemory& memory = handle.memory();
      const int self = handle.rank();
      std::vector<Tensor> tensors;
      std::vector<Work> receives;
      for (int from = 0; from < handle.size(); ++from) {
        for (const int64_t count : kCounts) {
          tensors.push_back(RecvTensor(count, memory));
          receives.push_back(handle.comm().Recv(tensors.back(), from, "activations"));
        }
      }
      std::vector<Work> sends;
      for (int to = 0; to < handle.size(); ++to) {
        for (int64_t i = 0; i < 4; ++i) {
          sends.push_back(
              handle.comm().Send(SendTensor(self, to, i, kCounts[i], memory), to, "activations"));
        }
      }
      for (int k = static_cast<int>(receives.size()) - 1; k >= 0; --k) {
        LS_RETURN_IF_ERROR(receives[static_cast<size_t>(k)].Wait());
        ExpectMessage(memory, tensors[static_cast<size_t>(k)], k / 4, self, k % 4);
      }
      return WaitAll(absl::MakeSpan(sends));
    });
  }
}

// One forward, one backward, as a pipeline's middle goes: neighbours send to each other crosswise,
// each with the receive after its send.
TEST_P(CommConformance, PipelineOfNeighbours) {
  for (int ranks = 2; ranks <= max_ranks(); ++ranks) {
    RunOk(ranks, [](RankUnderTest& handle) -> absl::Status {
      TestMemory& memory = handle.memory();
      constexpr int64_t kCount = 30'000;
      const int self = handle.rank();
      const bool has_next = self + 1 < handle.size();
      const bool has_previous = self > 0;
      std::deque<Work> sends;
      for (int64_t i = 0; i < 8; ++i) {
        if (has_previous) {
          const Tensor activation = RecvTensor(kCount, memory);
          LS_RETURN_IF_ERROR(handle.comm().Recv(activation, self - 1, "activations").Wait());
          ExpectMessage(memory, activation, self - 1, self, i);
        }
        if (has_next) {
          sends.push_back(handle.comm().Send(SendTensor(self, self + 1, i, kCount, memory),
                                             self + 1, "activations"));
          const Tensor gradient = RecvTensor(kCount, memory);
          LS_RETURN_IF_ERROR(handle.comm().Recv(gradient, self + 1, "gradients").Wait());
          ExpectMessage(memory, gradient, self + 1, self, i);
        }
        if (has_previous) {
          sends.push_back(handle.comm().Send(SendTensor(self, self - 1, i, kCount, memory),
                                             self - 1, "gradients"));
        }
        while (sends.size() > 4) {
          LS_RETURN_IF_ERROR(sends.front().Wait());
          sends.pop_front();
        }
      }
      for (Work& send : sends) LS_RETURN_IF_ERROR(send.Wait());
      return absl::OkStatus();
    });
  }
}

// Messages pass a collective that waits for somebody.
TEST_P(CommConformance, MessagesPassCollectives) {
  if (max_ranks() < 2) return;
  for (const int64_t count : kCounts) {
    RunOk(2, [count](RankUnderTest& handle) -> absl::Status {
      TestMemory& memory = handle.memory();
      const int peer = 1 - handle.rank();
      const Tensor sum = memory.TensorOf(Bytes(200'000), DType::kF32);
      Work reduced;
      if (handle.rank() == 0) {
        reduced = handle.comm().AllReduce(sum, sum, ReduceOp::kSum, "gradients");
      }
      Work sent = handle.comm().Send(SendTensor(handle.rank(), peer, 7, count, memory), peer,
                                     "activations");
      const Tensor got = RecvTensor(count, memory);
      LS_RETURN_IF_ERROR(handle.comm().Recv(got, peer, "activations").Wait());
      ExpectMessage(memory, got, peer, handle.rank(), 7);
      LS_RETURN_IF_ERROR(sent.Wait());
      if (handle.rank() == 1) {
        reduced = handle.comm().AllReduce(sum, sum, ReduceOp::kSum, "gradients");
      }
      return reduced.Wait();
    });
  }
}

// Nobody gets out of a barrier before all have come in, by the clock that they share.
TEST_P(CommConformance, BarrierHoldsBack) {
  for (int ranks = 1; ranks <= max_ranks(); ++ranks) {
    RunOk(ranks, [](RankUnderTest& handle) -> absl::Status {
      CpuAllocator allocator;
      const Tensor own = Tensor::Empty(allocator, {2}, DType::kI64, MemoryClass::kWorkspace);
      const Tensor all =
          Tensor::Empty(allocator, {2 * handle.size()}, DType::kI64, MemoryClass::kWorkspace);
      for (int late = 0; late < handle.size(); ++late) {
        if (handle.rank() == late) std::this_thread::sleep_for(std::chrono::milliseconds(1));
        own.data<int64_t>()[0] = NowNanos();
        LS_RETURN_IF_ERROR(handle.comm().Barrier("step").Wait());
        own.data<int64_t>()[1] = NowNanos();
        LS_RETURN_IF_ERROR(handle.comm().AllGather(own, all, "times").Wait());
        for (int member = 0; member < handle.size(); ++member) {
          EXPECT_LE(all.data<int64_t>()[2 * member], own.data<int64_t>()[1]);
        }
      }
      return absl::OkStatus();
    });
  }
}

TEST_P(CommConformance, SplitByColorOrderedByKey) {
  if (max_ranks() < 5) return;
  RunOk(5, [](RankUnderTest& handle) -> absl::Status {
    // Ranks 0, 2, 4 in reverse order, 1 and 3 in theirs.
    const int self = handle.rank();
    const bool even = self % 2 == 0;
    LS_ASSIGN_OR_RETURN(std::unique_ptr<Communicator> group,
                        handle.comm().Split(self % 2, even ? -self : 0, even ? "even" : "odd"));
    EXPECT_EQ(group->name(), even ? "even" : "odd");
    if (even) {
      EXPECT_THAT(group->members(), ElementsAre(4, 2, 0));
    } else {
      EXPECT_THAT(group->members(), ElementsAre(1, 3));
    }
    EXPECT_EQ(group->members()[static_cast<size_t>(group->rank())], self);

    const Case c{.counts = std::vector<int64_t>(static_cast<size_t>(group->size()), 100),
                 .seed = even ? 1u : 2u};
    RunningCase(c, *group, handle).WaitAndCheck();

    // A group inside the group, without rank 2.
    LS_ASSIGN_OR_RETURN(std::unique_ptr<Communicator> inner,
                        group->Split(self == 2 ? -1 : 0, self, "inner"));
    if (self == 2) {
      EXPECT_EQ(inner, nullptr);
    } else if (even) {
      EXPECT_THAT(inner->members(), ElementsAre(0, 4));
      return inner->Barrier("inner").Wait();
    }
    return absl::OkStatus();
  });
}

// Two groups of the same ranks are two places to meet: each rank may call in any order.
TEST_P(CommConformance, GroupsDoNotOrderEachOther) {
  if (max_ranks() < 2) return;
  for (const int64_t count : {10, 100'000}) {
    RunOk(2, [count](RankUnderTest& handle) -> absl::Status {
      LS_ASSIGN_OR_RETURN(std::unique_ptr<Communicator> a, handle.comm().Split(0, 0, "a"));
      LS_ASSIGN_OR_RETURN(std::unique_ptr<Communicator> b, handle.comm().Split(0, 0, "b"));
      const Case in_a{.counts = {count, count}, .seed = 1};
      const Case in_b{.counts = {count, count}, .seed = 2};
      if (handle.rank() == 0) {
        RunningCase first(in_a, *a, handle);
        RunningCase second(in_b, *b, handle);
        first.WaitAndCheck();
        second.WaitAndCheck();
      } else {
        RunningCase second(in_b, *b, handle);
        RunningCase first(in_a, *a, handle);
        first.WaitAndCheck();
        second.WaitAndCheck();
      }
      return absl::OkStatus();
    });
  }
}

// In one group, a call may read what the one before it writes, without a wait between them.
TEST_P(CommConformance, CallsOfAGroupTakeEffectInOrder) {
  for (int ranks = 1; ranks <= max_ranks(); ++ranks) {
    for (const int64_t chunk : {16, 16 * 1024}) {
      RunOk(ranks, [chunk](RankUnderTest& handle) -> absl::Status {
        TestMemory& memory = handle.memory();
        const Case c{.counts = std::vector<int64_t>(static_cast<size_t>(handle.size()), chunk),
                     .seed = 5};
        const Tensor whole = memory.TensorOf(InputOf(c, handle.rank()), DType::kF32);
        const Tensor own = whole.View(chunk * handle.rank(), {chunk});
        Work scattered = handle.comm().ReduceScatter(whole, own, ReduceOp::kSum, "gradients");
        Work gathered = handle.comm().AllGather(own, whole, "parameters");
        LS_RETURN_IF_ERROR(gathered.Wait());
        LS_RETURN_IF_ERROR(scattered.Wait());
        EXPECT_TRUE(Agrees(c, handle.rank(), memory.Read(whole), handle.arithmetic()));
        return absl::OkStatus();
      });
    }
  }
}

}  // namespace
}  // namespace lockstep
