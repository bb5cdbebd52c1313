#include "core/run/guard/replica_guard.h"

#include <random>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "core/base/status.h"
#include "core/comm/launch.h"
#include "core/kernels/cpu/cpu_kernels.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace lockstep {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

TEST(FindFaultsTest, AMajorityDecides) {
  EXPECT_THAT(FindFaults({{{1, 7}}, {{1, 7}}, {{1, 7}}}), IsEmpty());
  const auto faults = FindFaults({{{1, 7}, {2, 5}}, {{1, 8}, {2, 5}}, {{1, 7}, {2, 5}}});
  ASSERT_EQ(faults.size(), 1u);
  EXPECT_EQ(faults[0].tensor, 0u);
  EXPECT_THAT(faults[0].suspects, ElementsAre(1));
  EXPECT_TRUE(faults[0].is_decided());
}

TEST(FindFaultsTest, TwoReplicasAndTiesNameAll) {
  const auto two = FindFaults({{{1, 7}}, {{1, 8}}});
  ASSERT_EQ(two.size(), 1u);
  EXPECT_THAT(two[0].suspects, ElementsAre(0, 1));
  EXPECT_FALSE(two[0].is_decided());
  const auto tie = FindFaults({{{1, 7}}, {{1, 8}}, {{1, 7}}, {{1, 8}}});
  ASSERT_EQ(tie.size(), 1u);
  EXPECT_THAT(tie[0].suspects, ElementsAre(0, 1, 2, 3));
}

// Shards of one tensor are other elements, and ranks of other stages have none.
TEST(FindFaultsTest, OnlyTheSameElementsAreCompared) {
  EXPECT_THAT(FindFaults({{{1, 7}}, {{2, 8}}, {{0, 0}}, {{1, 7}}}), IsEmpty());
}

// Each of 1,000 flipped bits is found, with tensor and rank; and nothing without one.
TEST(CheckReplicasTest, EveryFlippedBitIsNamed) {
  constexpr int kRanks = 3, kFlips = 1000;
  const std::vector<std::string> names = {"w", "b", "optimizer.first_moment.w"};
  const absl::Status status = RunRanks(kRanks, {}, [&](RankHandle& handle) {
    CpuAllocator allocator;
    CpuKernels kernels(allocator);
    std::vector<StateTensor> state;
    for (const std::string& name : names) {
      state.push_back({.name = name, .tensor = kernels.Empty({50}), .full_shape = {50}});
      kernels.Fill(state.back().tensor, 0.25f);
    }
    // A shard that no other rank has.
    state.push_back({.name = "shard",
                     .tensor = kernels.Empty({5}),
                     .full_shape = {15},
                     .first = 5 * handle.rank()});
    kernels.Fill(state.back().tensor, static_cast<float>(handle.rank()));
    std::mt19937 random(1);  // the same on all ranks
    for (int flip = 1; flip <= kFlips; ++flip) {
      const absl::Status clean = CheckReplicas(flip, state, kernels, handle.comm());
      EXPECT_TRUE(clean.ok()) << clean;
      const int wrong = static_cast<int>(random() % kRanks);
      const size_t tensor = random() % names.size(), bit = random() % (50 * 32);
      std::byte& byte = state[tensor].tensor.raw()[bit / 8];
      const std::byte mask{static_cast<uint8_t>(1 << bit % 8)};
      if (handle.rank() == wrong) byte ^= mask;
      const absl::Status found = CheckReplicas(flip, state, kernels, handle.comm());
      EXPECT_TRUE(absl::IsDataLoss(found));
      EXPECT_THAT(std::string(found.message()),
                  HasSubstr(absl::StrCat("step ", flip, ": wrong bits: '", names[tensor],
                                         "' on rank ", wrong, " is not")));
      if (handle.rank() == wrong) byte ^= mask;
    }
    return absl::OkStatus();
  });
  ASSERT_TRUE(status.ok()) << status;
}

}  // namespace
}  // namespace lockstep
