// A property test: whatever is called in whatever groups, all in flight together, gives what the
// serial model says.

#include <algorithm>  // std::shuffle
#include <cstdint>
#include <functional>
#include <memory>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "core/base/status.h"
#include "core/comm/conformance/running_case.h"
#include "core/comm/conformance/suite.h"

namespace lockstep {
namespace {

constexpr int kSplits = 3;
constexpr int kBatches = 8;

constexpr Operation kCollectives[] = {
    Operation::kAllReduce, Operation::kReduceScatter, Operation::kAllGather, Operation::kBroadcast,
    Operation::kReduce,    Operation::kGather,        Operation::kScatter,   Operation::kAllToAll};
constexpr DType kDTypes[] = {DType::kF32, DType::kF16, DType::kBF16, DType::kF64,
                             DType::kI32, DType::kI64, DType::kU8};

// The same on every member of a group: all of it follows from `seed`.
Case RandomCase(uint64_t seed, int size) {
  const auto pick = [&](uint64_t what, uint64_t n) { return RandomBits(seed, what) % n; };
  Case c;
  c.operation = kCollectives[pick(1, 8)];
  c.dtype = kDTypes[pick(2, Reduces(c.operation) ? 6 : 7)];
  c.reduce_op = static_cast<ReduceOp>(pick(3, 5));
  c.root = static_cast<int>(pick(4, static_cast<uint64_t>(size)));
  c.in_place = pick(5, 2) == 1;
  c.seed = seed % 1'000'003;
  const bool even = c.operation == Operation::kAllToAll || pick(6, 2) == 1;
  // From nothing to some ten thousand, small ones more often.
  const auto total = static_cast<int64_t>(pick(7, uint64_t{1} << pick(8, 16)));
  c.counts = PartsFor(total, size, even, c.in_place, c.dtype, seed);
  return c;
}

// The groups of one rank: the world, and one group of each random split.
absl::StatusOr<std::vector<std::unique_ptr<Communicator>>> RandomGroups(uint64_t seed,
                                                                        Communicator& world) {
  std::vector<std::unique_ptr<Communicator>> groups;
  for (uint64_t split = 0; split < kSplits; ++split) {
    const uint64_t bits = RandomBits(seed + split, static_cast<uint64_t>(world.rank()));
    LS_ASSIGN_OR_RETURN(std::unique_ptr<Communicator> group,
                        world.Split(static_cast<int>(bits % 3), static_cast<int>(bits >> 32 & 7),
                                    absl::StrCat("split", split)));
    groups.push_back(std::move(group));
  }
  return groups;
}

// Something that is called, and what is to be done when all has been called.
using Start = std::function<std::function<absl::Status()>()>;

absl::Status RunRandomSequence(uint64_t seed, RankUnderTest& handle) {
  TestMemory& memory = handle.memory();
  LS_ASSIGN_OR_RETURN(std::vector<std::unique_ptr<Communicator>> groups,
                      RandomGroups(seed, handle.comm()));
  std::vector<Communicator*> all = {&handle.comm()};
  for (const auto& group : groups) all.push_back(group.get());
  // Each rank has an order of its own, between groups and of its waits.
  std::mt19937_64 own_order(seed * 64 + static_cast<uint64_t>(handle.rank()));

  for (uint64_t batch = 0; batch < kBatches; ++batch) {
    std::vector<Start> starts;
    for (size_t g = 0; g < all.size(); ++g) {
      Communicator* comm = all[g];
      // A group is known by its split and its first member.
      const uint64_t group_seed =
          RandomBits(seed, batch * 1000 + g * 100 + static_cast<uint64_t>(comm->members()[0]));
      starts.push_back([=, &handle] {
        // Several in a row: the order within a group is the same for all.
        auto running = std::make_shared<std::vector<std::unique_ptr<RunningCase>>>();
        for (uint64_t i = 0; i < 1 + group_seed % 3; ++i) {
          running->push_back(std::make_unique<RunningCase>(
              RandomCase(RandomBits(group_seed, i), comm->size()), *comm, handle));
        }
        return [running] {
          for (auto it = running->rbegin(); it != running->rend(); ++it) (*it)->WaitAndCheck();
          return absl::OkStatus();
        };
      });
    }
    // A ring of messages over each group.
    for (Communicator* comm : all) {
      const int next = (comm->rank() + 1) % comm->size();
      const int previous = (comm->rank() + comm->size() - 1) % comm->size();
      const Case from_here{.counts = {static_cast<int64_t>(batch * 2000)},
                           .seed = static_cast<uint64_t>(comm->rank())};
      Case to_here = from_here;
      to_here.seed = static_cast<uint64_t>(previous);
      starts.push_back([=, &memory] {
        const Tensor out = memory.TensorOf(InputOf(from_here, 0), DType::kF32);
        auto work = std::make_shared<Work>(comm->Send(out, next, "ring"));
        return [work] { return work->Wait(); };
      });
      starts.push_back([=, &memory] {
        const Tensor in = memory.TensorOf(InputOf(from_here, 0), DType::kF32);
        auto work = std::make_shared<Work>(comm->Recv(in, previous, "ring"));
        return [work, in, to_here, &memory]() -> absl::Status {
          LS_RETURN_IF_ERROR(work->Wait());
          EXPECT_TRUE(memory.Read(in) == InputOf(to_here, 0));
          return absl::OkStatus();
        };
      });
    }

    std::shuffle(starts.begin(), starts.end(), own_order);
    std::vector<std::function<absl::Status()>> finishes;
    for (const Start& start : starts) finishes.push_back(start());
    std::shuffle(finishes.begin(), finishes.end(), own_order);
    absl::Status status;
    for (const auto& finish : finishes) status.Update(finish());
    LS_RETURN_IF_ERROR(status);
    if (testing::Test::HasFailure()) return absl::InternalError("an expectation failed");
  }
  return absl::OkStatus();
}

TEST_P(CommConformance, RandomSequencesOnRandomGroups) {
  for (uint64_t seed = 1; seed <= 4; ++seed) {
    for (int ranks = 1; ranks <= max_ranks(); ++ranks) {
      RunOk(ranks, [seed](RankUnderTest& handle) { return RunRandomSequence(seed, handle); });
    }
  }
}

}  // namespace
}  // namespace lockstep
