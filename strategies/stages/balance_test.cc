#include "strategies/stages/balance.h"

#include <algorithm>
#include <limits>
#include <numeric>
#include <utility>
#include <vector>

#include "core/base/philox.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace lockstep {
namespace {

using ::testing::ElementsAre;

using Numbers = std::vector<int64_t>;

TEST(EvenBalanceTest, EvensOutTheCostliestStage) {
  EXPECT_THAT(EvenBalance({1, 2, 3, 4, 5, 6}, 2), ElementsAre(4, 2));
  EXPECT_THAT(EvenBalance({1, 2, 3, 4, 5, 6}, 6), ElementsAre(1, 1, 1, 1, 1, 1));
  EXPECT_THAT(EvenBalance({5, 5, 5, 5}, 1), ElementsAre(4));
  EXPECT_THAT(EvenBalance({1, 1, 1, 9}, 2), ElementsAre(3, 1));
  EXPECT_THAT(EvenBalance({9, 1, 1, 1}, 2), ElementsAre(1, 3));
}

TEST(EvenBalanceTest, BlocksThatCostNothingStillNeedAStage) {
  const Numbers balance = EvenBalance({0, 0, 0}, 3);
  EXPECT_THAT(balance, ElementsAre(1, 1, 1));
  EXPECT_THAT(EvenBalance({0, 7, 0, 7}, 2), ::testing::AnyOf(ElementsAre(2, 2), ElementsAre(3, 1)));
}

TEST(EvenBalanceDeathTest, StagesWithoutBlocksAreABrokenPromise) {
  testing::FLAGS_gtest_death_test_style = "threadsafe";
  EXPECT_DEATH(EvenBalance({42}, 2), "stages");  // CheckPlan refuses it as a user's mistake
  EXPECT_DEATH(EvenBalance({42}, 0), "stages");
  EXPECT_DEATH(EvenBalance({42}, -1), "stages");
}

int64_t Costliest(const Numbers& costs, const Numbers& balance) {
  int64_t costliest = 0;
  auto at = costs.begin();
  for (const int64_t count : balance) {
    costliest = std::max(costliest, std::accumulate(at, at + count, int64_t{0}));
    at += count;
  }
  return costliest;
}

// The least cost of all divisions of the blocks from `first` on, by trying them all.
int64_t LeastOfAll(const Numbers& costs, size_t first, int stages) {
  int64_t sum = 0, least = std::accumulate(costs.begin() + static_cast<int64_t>(first), costs.end(),
                                           int64_t{0});
  if (stages == 1) return least;
  for (size_t end = first + 1; end + static_cast<size_t>(stages) - 1 <= costs.size(); ++end) {
    sum += costs[end - 1];
    least = std::min(least, std::max(sum, LeastOfAll(costs, end, stages - 1)));
  }
  return least;
}

TEST(EvenBalanceTest, IsTheBestOfAllDivisions) {
  const Philox philox(PhiloxKey(1, "balance", "costs"));
  std::vector<float> drawn(9 * 20);
  philox.FillUniform(drawn, 0, 0, 0, 100);
  for (size_t i = 0; i < drawn.size(); i += 9) {
    const Numbers costs(drawn.begin() + static_cast<int64_t>(i),
                        drawn.begin() + static_cast<int64_t>(i) + 9);
    for (int stages = 1; stages <= 9; ++stages) {
      const Numbers balance = EvenBalance(costs, stages);
      EXPECT_EQ(std::accumulate(balance.begin(), balance.end(), int64_t{0}), 9);
      EXPECT_EQ(Costliest(costs, balance), LeastOfAll(costs, 0, stages));
    }
  }
}

// The stages of a V's rank are on both of its legs: here the first and the last, and the two in the
// middle.
TEST(EvenBalanceTest, OfAVEvensOutTheRanks) {
  const std::vector<int> v = {0, 1, 1, 0};
  // A GPT: embeddings, six layers, head. By stages alone, the middle rank could get four layers.
  EXPECT_THAT(EvenBalance({0, 10, 10, 10, 10, 10, 10, 1}, v), ElementsAre(3, 1, 2, 2));
  EXPECT_THAT(EvenBalance({4, 1, 1, 4}, v), ElementsAre(1, 1, 1, 1));
  // Other placements are evened out by stages.
  EXPECT_EQ(EvenBalance({1, 2, 3, 4, 5, 6}, std::vector<int>{0, 1, 0, 1}),
            EvenBalance({1, 2, 3, 4, 5, 6}, 4));
}

// The costliest rank of a V and the costliest stage, for all divisions of the blocks.
TEST(EvenBalanceTest, OfAVIsTheBestOfAllDivisions) {
  const Philox philox(PhiloxKey(1, "balance", "costs of a V"));
  std::vector<float> drawn(8 * 20);
  philox.FillUniform(drawn, 0, 0, 0, 20);
  const auto rank_and_stage = [](const Numbers& costs, const Numbers& balance) {
    const size_t stages = balance.size();
    Numbers of_stage, of_rank(stages / 2, 0);
    auto at = costs.begin();
    for (size_t stage = 0; stage < stages; ++stage) {
      of_stage.push_back(std::accumulate(at, at + balance[stage], int64_t{0}));
      of_rank[std::min(stage, stages - 1 - stage)] += of_stage.back();
      at += balance[stage];
    }
    return std::pair(*std::max_element(of_rank.begin(), of_rank.end()),
                     *std::max_element(of_stage.begin(), of_stage.end()));
  };
  for (size_t i = 0; i < drawn.size(); i += 8) {
    const Numbers costs(drawn.begin() + static_cast<int64_t>(i),
                        drawn.begin() + static_cast<int64_t>(i) + 8);
    for (const std::vector<int>& v : {std::vector<int>{0, 0}, {0, 1, 1, 0}, {0, 1, 2, 2, 1, 0}}) {
      auto best = std::pair(std::numeric_limits<int64_t>::max(), int64_t{0});
      // Where stages begin, as bits between blocks.
      for (unsigned begins = 0; begins < 1u << 7; ++begins) {
        Numbers balance = {1};
        for (int block = 1; block < 8; ++block) {
          if (begins >> (block - 1) & 1) {
            balance.push_back(1);
          } else {
            ++balance.back();
          }
        }
        if (balance.size() == v.size()) best = std::min(best, rank_and_stage(costs, balance));
      }
      EXPECT_EQ(rank_and_stage(costs, EvenBalance(costs, v)), best) << v.size();
    }
  }
}

}  // namespace
}  // namespace lockstep
