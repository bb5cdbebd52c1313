// ZB-V and DualPipeV.

#include <algorithm>
#include <map>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "strategies/schedules/named_schedules.h"
#include "strategies/schedules/simulation.h"

namespace lockstep {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr StageCosts kEqual = {1, 1, 1};

Simulation WithCosts(const Schedule& schedule, const StageCosts& costs) {
  return Simulate(schedule, std::vector<StageCosts>(schedule.stages(), costs));
}

// Time that all ranks wait, divided by the ranks.
double MeanWait(const Schedule& schedule, const StageCosts& costs) {
  const Simulation simulation = WithCosts(schedule, costs);
  return simulation.total * simulation.bubble_fraction();
}

std::string RowOf(const Schedule& schedule, int rank) {
  std::string row;
  for (const Action& action : schedule.ranks[rank]) {
    absl::StrAppend(&row, row.empty() ? "" : " ", ToString(action, /*with_stage=*/true));
  }
  return row;
}

TEST(VShapedTest, StagesLieOnAV) {
  EXPECT_THAT(ZeroBubbleVSchedule(3, 5).rank_of_stage, ElementsAre(0, 1, 2, 2, 1, 0));
  EXPECT_THAT(DualPipeVSchedule(2, 4)->rank_of_stage, ElementsAre(0, 1, 1, 0));
  EXPECT_THAT(ZeroBubbleVSchedule(1, 1).rank_of_stage, ElementsAre(0, 0));
}

TEST(VShapedTest, AreValidForAllSizesThatTheyTake) {
  for (int p = 1; p <= 9; ++p) {
    for (int m = 1; m <= 3 * p + 2; ++m) {
      EXPECT_TRUE(Validate(ZeroBubbleVSchedule(p, m)).ok())
          << p << " x " << m << ": " << Validate(ZeroBubbleVSchedule(p, m));
      const auto dual = DualPipeVSchedule(p, m);
      ASSERT_EQ(dual.ok(), m >= 2 * p) << p << " x " << m;
      if (dual.ok()) {
        EXPECT_TRUE(Validate(*dual).ok()) << p << " x " << m << ": " << Validate(*dual);
      }
    }
  }
}

TEST(VShapedTest, DualPipeVSaysHowManyMicroBatchesItNeeds) {
  EXPECT_THAT(std::string(DualPipeVSchedule(4, 7).status().message()),
              AllOf(HasSubstr("8 for 4, but there are 7"), HasSubstr("zb_v, which takes any")));
}

// The memory of 1F1B's first rank: the activations of p micro-batches at a whole rank's blocks, of
// which a stage has half (Qi et al., 2024). ZB-V has this peak on every rank, once the
// micro-batches fill the V.
TEST(ZeroBubbleVTest, KeepsAsMuchAs1F1B) {
  for (const int p : {1, 2, 3, 4, 6, 8}) {
    for (const int m : {1, p, 2 * p - 1, 2 * p, 5 * p}) {
      const Schedule schedule = ZeroBubbleVSchedule(p, m);
      const int of_1f1b = PeakActivations(OneForwardOneBackwardSchedule(p, m), 0);
      for (int rank = 0; rank < p; ++rank) {
        const int peak = PeakActivations(schedule, rank);
        EXPECT_LE(peak, 2 * of_1f1b) << p << " x " << m << ", rank " << rank;
        if (m >= 2 * p - 1) {
          EXPECT_EQ(peak, 2 * p) << p << " x " << m << ", rank " << rank;
        }
      }
    }
  }
}

// "Zero bubble" in Qi et al., 2024, is that no rank waits between its first action and its last,
// where F = B = W. A step has the ramp beside: the last rank begins p - 1 forwards after the first,
// so that the step takes 6 m + p - 1 of them. ZB-H1 waits for 2 (p - 1), in the same unit.
TEST(ZeroBubbleVTest, WaitsForTheRampOnly) {
  for (const int p : {1, 2, 3, 4, 6, 8}) {
    for (const int m : {2 * p - 1, 2 * p, 3 * p + 1, 8 * p}) {
      const Simulation simulation = WithCosts(ZeroBubbleVSchedule(p, m), kEqual);
      EXPECT_DOUBLE_EQ(simulation.total, 6 * m + p - 1) << p << " x " << m;
      EXPECT_NEAR(simulation.bubble_fraction(), (p - 1.0) / (6 * m + p - 1), 1e-12);
      for (int rank = 0; rank < p; ++rank) {
        const auto& actions = simulation.ranks[rank];
        EXPECT_DOUBLE_EQ(actions.front().begin, rank);
        EXPECT_DOUBLE_EQ(actions.back().end - actions.front().begin, 6 * m) << "rank " << rank;
      }
    }
  }
}

// Stages of zb_h1 take twice as long as those of a V.
TEST(ZeroBubbleVTest, WaitsLessThanZeroBubbleH1) {
  for (const StageCosts& costs : {kEqual, StageCosts{2, 3, 1}, StageCosts{1, 1.2, 0.8}}) {
    const StageCosts twice = {2 * costs.forward, 2 * costs.input_gradient,
                              2 * costs.weight_gradient};
    for (const int p : {2, 3, 4, 8}) {
      for (const int m : {2 * p - 1, 2 * p, 6 * p}) {
        EXPECT_LT(MeanWait(ZeroBubbleVSchedule(p, m), costs),
                  MeanWait(ZeroBubbleSchedule(p, m), twice) - 1e-9)
            << p << " x " << m << ", input gradient " << costs.input_gradient;
      }
      EXPECT_LE(MeanWait(ZeroBubbleVSchedule(p, p), kEqual),
                MeanWait(ZeroBubbleSchedule(p, p), {2, 2, 2}) + 1e-9);
    }
  }
}

// The steady state takes all six actions of a rank in turn, so that unequal costs of the three
// kinds cannot add up: more micro-batches do not wait longer.
TEST(ZeroBubbleVTest, WaitsDoNotGrowWithTheMicroBatches) {
  for (const StageCosts& costs : {StageCosts{2, 3, 1}, StageCosts{3, 1, 1}, StageCosts{1, 1, 2}}) {
    for (const int p : {2, 4, 8}) {
      EXPECT_NEAR(MeanWait(ZeroBubbleVSchedule(p, 2 * p), costs),
                  MeanWait(ZeroBubbleVSchedule(p, 10 * p), costs), 1e-9);
    }
  }
}

TEST(ZeroBubbleVTest, OnTwoRanksByHand) {
  const Schedule schedule = ZeroBubbleVSchedule(2, 3);
  EXPECT_EQ(RowOf(schedule, 0),
            "0F0 0F1 0F2 3F0 3I0 3W0 3F1 3I1 3W1 0I0 0W0 3F2 3I2 3W2 0I1 0W1 0I2 0W2");
  EXPECT_EQ(RowOf(schedule, 1),
            "1F0 2F0 1F1 2F1 2I0 2W0 1F2 1I0 1W0 2F2 2I1 2W1 1I1 2I2 1I2 1W1 2W2 1W2");
}

// PP + 1 of DeepSeek's table, which counts 2p stages.
TEST(DualPipeVTest, KeepsOneMoreThanItHasStages) {
  for (const int p : {1, 2, 3, 4, 6, 8}) {
    for (const int m : {2 * p, 2 * p + 1, 5 * p}) {
      const Schedule schedule = DualPipeVSchedule(p, m).value();
      for (int rank = 0; rank < p; ++rank) {
        EXPECT_EQ(PeakActivations(schedule, rank), std::min(2 * p + 1, 2 * m)) << p << " x " << m;
      }
    }
  }
}

// How long a schedule takes where a forward and the whole backward behind it are one action, whose
// results both come at its end: DualPipe overlaps the two.
double TotalOfPairs(const Schedule& schedule, const StageCosts& costs) {
  using Result = std::tuple<bool, int, int>;  // forward or gradient, stage, micro-batch
  std::map<Result, double> ended;
  std::vector<double> free(schedule.ranks.size(), 0);
  std::vector<size_t> next(schedule.ranks.size(), 0);
  for (bool moved = true; moved;) {
    moved = false;
    for (size_t rank = 0; rank < next.size(); ++rank) {
      const std::vector<Action>& actions = schedule.ranks[rank];
      while (next[rank] < actions.size()) {
        const size_t at = next[rank];
        const bool is_pair = actions[at].kind == ActionKind::kForward && at + 1 < actions.size() &&
                             actions[at + 1].kind == ActionKind::kBackward;
        double time = free[rank], length = 0;
        bool is_ready = true;
        std::vector<Result> results;
        for (size_t i = at; i < at + (is_pair ? 2 : 1); ++i) {
          const auto [kind, stage, micro_batch] = actions[i];
          length += costs.Of(kind);
          if (kind == ActionKind::kWeightGradient) continue;  // needs what is on its rank
          const bool is_forward = kind == ActionKind::kForward;
          results.emplace_back(is_forward, stage, micro_batch);
          const int source = is_forward ? stage - 1 : stage + 1;
          if (source < 0 || source == schedule.stages()) continue;
          const auto found = ended.find({is_forward, source, micro_batch});
          is_ready &= found != ended.end();
          if (is_ready) time = std::max(time, found->second);
        }
        if (!is_ready) break;
        free[rank] = time + length;
        for (const Result& result : results) ended[result] = free[rank];
        next[rank] += is_pair ? 2 : 1;
        moved = true;
      }
    }
  }
  for (size_t rank = 0; rank < next.size(); ++rank) {
    EXPECT_EQ(next[rank], schedule.ranks[rank].size()) << "deadlock";
  }
  return *std::max_element(free.begin(), free.end());
}

// DeepSeek's table: (PP/2 - 1) (F&B + B - 3W), of PP = 2p stages, B a whole backward. F&B is F + B
// where nothing is gained by the overlap.
double PublishedWait(int ranks, const StageCosts& costs) {
  const double backward = costs.input_gradient + costs.weight_gradient;
  return (ranks - 1) * (costs.forward + backward + backward - 3 * costs.weight_gradient);
}

TEST(DualPipeVTest, WaitsAsLongAsPublishedWherePairsAreOneAction) {
  for (const StageCosts& costs :
       {kEqual, StageCosts{2, 3, 1}, StageCosts{1, 1.2, 0.8}, StageCosts{1, 3, 1}}) {
    const double work = costs.forward + costs.input_gradient + costs.weight_gradient;
    for (const int p : {1, 2, 3, 4, 6, 8}) {
      for (const int m : {2 * p, 3 * p + 1, 6 * p}) {
        EXPECT_NEAR(TotalOfPairs(*DualPipeVSchedule(p, m), costs) - 2 * m * work,
                    PublishedWait(p, costs), 1e-9)
            << p << " x " << m << ", input gradient " << costs.input_gradient;
      }
    }
  }
}

// Run here, a pair is a forward and then a backward: the forward's output is sent before the
// backward begins. Where all costs are equal, that halves the published wait: it is ZB-V's.
TEST(DualPipeVTest, WaitsLessWherePairsAreTwoActions) {
  for (const int p : {1, 2, 3, 4, 6, 8}) {
    for (const int m : {2 * p, 3 * p + 1, 6 * p}) {
      const Schedule schedule = DualPipeVSchedule(p, m).value();
      const Simulation simulation = WithCosts(schedule, kEqual);
      EXPECT_DOUBLE_EQ(simulation.total, 6 * m + p - 1) << p << " x " << m;
      EXPECT_NEAR(simulation.bubble_fraction(), (p - 1.0) / (6 * m + p - 1), 1e-12);
      for (const StageCosts& costs : {StageCosts{2, 3, 1}, StageCosts{1, 1.2, 0.8}}) {
        EXPECT_LE(MeanWait(schedule, costs), PublishedWait(p, costs) + 1e-9);
      }
    }
  }
}

TEST(DualPipeVTest, OnTwoRanksByHand) {
  const Schedule schedule = DualPipeVSchedule(2, 4).value();
  EXPECT_EQ(RowOf(schedule, 0),
            "0F0 0F1 0F2 3F0 3I0 3W0 3F1 0F3 3B1 3F2 0B0 3B2 3F3 0B1 3B3 0I2 0W2 0I3 0W3");
  EXPECT_EQ(RowOf(schedule, 1),
            "1F0 2F0 1F1 2F1 1F2 2B0 2F2 1B0 1F3 2B1 2F3 1B1 2B2 1B2 2I3 1I3 2W3 1W3");
}

}  // namespace
}  // namespace lockstep
