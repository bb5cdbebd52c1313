#include "core/run/guard/straggler_watch.h"

#include <vector>

#include "core/comm/launch.h"
#include "gtest/gtest.h"

namespace lockstep {
namespace {

constexpr int64_t kMilli = 1000000;

RankWork Work(int64_t forward, int64_t backward, int64_t optimizer = 1) {
  RankWork work = {};
  work[static_cast<size_t>(Phase::kForward)] = forward * kMilli;
  work[static_cast<size_t>(Phase::kBackward)] = backward * kMilli;
  work[static_cast<size_t>(Phase::kOptimizer)] = optimizer * kMilli;
  return work;
}

TEST(FindStragglersTest, NamesTheRankAndThePartInWhichItLosesMost) {
  const RankWork usual = Work(10, 20);
  const auto found = FindStragglers({usual, usual, Work(14, 50), usual}, 1, 2, 4, 99);
  ASSERT_EQ(found.size(), 1u);
  EXPECT_EQ(found[0].rank, 2);
  EXPECT_EQ(found[0].step, 99);
  EXPECT_EQ(found[0].part, Phase::kBackward);
  EXPECT_DOUBLE_EQ(found[0].factor, 65. / 31);
  EXPECT_DOUBLE_EQ(found[0].seconds, 0.034 / 4);
}

TEST(FindStragglersTest, TheFactorIsALimit) {
  const std::vector<RankWork> work = {Work(9, 20), Work(19, 40)};  // 30 and 60
  EXPECT_TRUE(FindStragglers(work, 1, 2, 1, 0).empty());
  EXPECT_EQ(FindStragglers(work, 1, 1.9, 1, 0).size(), 1u);
}

// A stage with more blocks works longer than another, and the one slow rank of three does not set
// the measure for the others.
TEST(FindStragglersTest, OnlyRanksOfOneStageAreCompared) {
  EXPECT_TRUE(FindStragglers({Work(1, 2), Work(50, 100)}, 2, 1.5, 1, 0).empty());
  const auto found = FindStragglers(
      {Work(1, 2), Work(1, 2), Work(1, 2), Work(50, 100), Work(50, 300), Work(50, 100)}, 2, 1.5, 1,
      0);
  ASSERT_EQ(found.size(), 1u);
  EXPECT_EQ(found[0].rank, 4);
}

TEST(StragglerWatchTest, RanksTellEachOtherAtTheEndOfAWindow) {
  const absl::Status status = RunRanks(3, {}, [](RankHandle& handle) {
    StragglerWatch watch({.straggler_factor = 2, .straggler_steps = 3});
    for (int step = 0; step < 6; ++step) {
      // Rank 1 is slow in the second window. All wait for it there, which is nobody's work.
      StepTimes times;
      times.phases[static_cast<size_t>(Phase::kData)] =
          (step >= 3 && handle.rank() == 1 ? 5 : 1) * kMilli;
      times.phases[static_cast<size_t>(Phase::kBubble)] = handle.rank() == 2 ? 100 * kMilli : 0;
      times.communication_exposed = handle.rank() == 0 ? 100 * kMilli : 0;
      const auto found = watch.Take(step, times, handle.comm(), 1);
      EXPECT_TRUE(found.ok()) << found.status();
      if (!found.ok()) return found.status();
      EXPECT_EQ(found->size(), step == 5 ? 1u : 0u) << step;
      if (found->empty()) continue;
      EXPECT_EQ(found->front().rank, 1);
      EXPECT_EQ(found->front().part, Phase::kData);
      EXPECT_DOUBLE_EQ(found->front().factor, 5);
    }
    EXPECT_EQ(watch.slow_ranks().size(), 1u);
    EXPECT_EQ(watch.slow_ranks()[0].windows, 1);
    EXPECT_EQ(watch.slow_ranks()[0].worst.rank, 1);
    return absl::OkStatus();
  });
  EXPECT_TRUE(status.ok()) << status;
}

TEST(StragglerWatchTest, WithoutAFactorNobodyCommunicates) {
  const absl::Status status = RunRanks(2, {}, [](RankHandle& handle) {
    StragglerWatch watch({.straggler_steps = 1});
    // The other rank never comes.
    if (handle.rank() == 1) return absl::OkStatus();
    EXPECT_TRUE(watch.Take(0, {}, handle.comm(), 1)->empty());
    return absl::OkStatus();
  });
  EXPECT_TRUE(status.ok()) << status;
}

}  // namespace
}  // namespace lockstep
