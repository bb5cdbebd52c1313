#include "strategies/data_parallel/unit.h"

#include <functional>
#include <memory>
#include <vector>

#include "core/base/status.h"
#include "core/comm/launch.h"
#include "core/kernels/cpu/cpu_kernels.h"
#include "gtest/gtest.h"

namespace lockstep {
namespace {

constexpr uint64_t kSeed = 5;

std::vector<float> Values(const Tensor& tensor) {
  const auto span = tensor.span<float>();
  return {span.begin(), span.end()};
}

// What Initialize makes of all of a parameter.
std::vector<float> InitialValues(const Parameter& parameter, Kernels& kernels) {
  const Tensor whole = kernels.Empty(parameter.shape, DType::kF32, MemoryClass::kWorkspace);
  Initialize(parameter, kSeed, 0, kernels, whole);
  return Values(whole);
}

// A rank of a test, with a unit of parameters that no number of ranks divides: 3, 35 and 1 numbers,
// and one tied to the second.
struct UnitRank {
  UnitRank(RankHandle& handle, int neighbours)
      : rank(handle.rank()),
        kernels(allocator),
        beside(handle.comm().Split(rank / neighbours, rank, "neighbours").value()),
        alone(handle.comm().Split(rank, 0, "alone").value()),
        layout(LayOut({{.elements = 3}, {.elements = 35}, {.elements = 1}}, handle.size(),
                      DType::kF32)),
        unit({{&a, {}}, {&b, {&tied}}, {&c, {}}}, layout,
             {.shards = handle.comm(), .neighbours = *beside, .replicas = *alone}, Precision(),
             kernels, kSeed) {}

  void ExpectWhole() {
    for (const Parameter* parameter : {&a, &b, &c}) {
      EXPECT_EQ(Values(parameter->value), InitialValues(*parameter, kernels)) << parameter->name;
    }
    EXPECT_EQ(tied.value.raw(), b.value.raw());
  }

  int64_t parameter_bytes() const { return allocator.books().live(MemoryClass::kParameters); }

  const int rank;
  CpuAllocator allocator;
  CpuKernels kernels;
  std::unique_ptr<Communicator> beside, alone;
  Parameter a{"a", {3}, Init::Normal(1)};
  Parameter b{"b", {5, 7}, Init::Uniform(1)};
  Parameter c{"c", {1}, Init::Constant(2)};
  Parameter tied{"tied", {5, 7}, Init::Normal(1)};
  const FlatLayout layout;
  FsdpUnit unit;
};

void OnRanks(int ranks, int neighbours, const std::function<void(UnitRank&)>& run) {
  const absl::Status status = RunRanks(ranks, {}, [&](RankHandle& handle) {
    UnitRank rank(handle, neighbours);
    run(rank);
    return absl::OkStatus();
  });
  EXPECT_TRUE(status.ok()) << status;
}

TEST(FsdpUnitTest, ShardsAddUpToEachParameter) {
  for (const int ranks : {1, 2, 3, 5, 7}) {
    std::vector<int64_t> covered(3);
    std::vector<std::vector<int64_t>> of_ranks(ranks);
    OnRanks(ranks, 1, [&](UnitRank& rank) {
      const std::vector<float> whole = InitialValues(rank.b, rank.kernels);
      for (const TrainedTensor& part : rank.unit.held()) {
        of_ranks[rank.rank].push_back(part.value.elements());
      }
      const Range b = rank.layout.InShard(1, rank.rank);
      EXPECT_EQ(Values(rank.unit.held()[1].value),
                std::vector<float>(whole.begin() + b.first, whole.begin() + b.first + b.count));
    });
    for (const std::vector<int64_t>& rank : of_ranks) {
      ASSERT_EQ(rank.size(), covered.size());
      for (size_t i = 0; i < rank.size(); ++i) covered[i] += rank[i];
    }
    EXPECT_EQ(covered, std::vector<int64_t>({3, 35, 1})) << ranks;
  }
}

TEST(FsdpUnitTest, IsWholeWhenGathered) {
  for (const int ranks : {1, 2, 3, 5}) {
    OnRanks(ranks, ranks, [](UnitRank& rank) {
      rank.unit.parameters().AwaitWhole();
      rank.ExpectWhole();
    });
  }
}

TEST(FsdpUnitTest, RestsInPartsAmongNeighbours) {
  OnRanks(6, 3, [](UnitRank& rank) {
    FlatParameters& parameters = rank.unit.parameters();
    const int64_t shard = rank.unit.parameters().shard().bytes(),
                  whole = rank.unit.parameters().whole().bytes();
    EXPECT_EQ(whole, 6 * shard);
    EXPECT_EQ(rank.parameter_bytes(), shard);
    parameters.AwaitWhole();
    EXPECT_EQ(rank.parameter_bytes(), shard + whole);
    parameters.Rest();
    EXPECT_EQ(rank.parameter_bytes(), shard + whole / 3);
    // What the neighbours have kept is what comes back, whatever the shards are by now.
    rank.kernels.Fill(parameters.shard(), -1);
    parameters.AwaitWhole();
    rank.ExpectWhole();
    EXPECT_EQ(rank.parameter_bytes(), shard + whole);
    parameters.Release();
    EXPECT_EQ(rank.parameter_bytes(), shard);
    parameters.AwaitWhole();
    EXPECT_EQ(Values(rank.c.value), std::vector<float>({-1}));
  });
}

TEST(FsdpUnitTest, RestsWholeWithoutNeighboursAndAsAShardWithAll) {
  for (const int neighbours : {1, 4}) {
    OnRanks(4, neighbours, [&](UnitRank& rank) {
      const int64_t shard = rank.unit.parameters().shard().bytes(),
                    whole = rank.unit.parameters().whole().bytes();
      rank.unit.parameters().AwaitWhole();
      rank.unit.parameters().Rest();
      EXPECT_EQ(rank.parameter_bytes(), neighbours == 1 ? shard + whole : shard);
      rank.unit.parameters().AwaitWhole();
      rank.ExpectWhole();
    });
  }
}

}  // namespace
}  // namespace lockstep
