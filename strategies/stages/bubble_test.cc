// What BubbleFraction predicts.

#include <vector>

#include "gtest/gtest.h"
#include "strategies/schedules/named_schedules.h"
#include "strategies/stages/plan.h"
#include "strategies/stages/testing/model_of_costs.h"

namespace lockstep {
namespace {

// The bubble of rank `rank`, where each stage has one block; `macs` are the blocks' costs.
double Bubble(const std::vector<int64_t>& macs, const Schedule& schedule, int rank,
              Checkpointing checkpointing = Checkpointing::kNever) {
  StagePlan plan = {.stages = {}, .rank_of_stage = schedule.rank_of_stage};
  for (int64_t i = 0; i < schedule.stages(); ++i) plan.stages.push_back({i, i + 1});
  return BubbleFraction(ModelOfCosts(macs), plan, schedule, checkpointing, rank);
}

TEST(BubbleFractionTest, IsThatOfThePapersWhereStagesAreEqual) {
  for (const double p : {1, 2, 4}) {
    for (const double m : {4, 8}) {
      const int ranks = static_cast<int>(p), micro_batches = static_cast<int>(m);
      const std::vector<int64_t> macs(ranks, 10);
      for (int rank = 0; rank < ranks; ++rank) {
        const double bubble = (p - 1) / (m + p - 1);
        for (const Checkpointing checkpointing :
             {Checkpointing::kAlways, Checkpointing::kExceptLast, Checkpointing::kNever}) {
          EXPECT_NEAR(Bubble(macs, GPipeSchedule(ranks, micro_batches), rank, checkpointing),
                      bubble, 1e-12);
          EXPECT_NEAR(Bubble(macs, OneForwardOneBackwardSchedule(ranks, micro_batches), rank,
                             checkpointing),
                      bubble, 1e-12);
        }
        // A third of the wait is left: p - 1 halves of a backward, beside m times three.
        EXPECT_NEAR(Bubble(macs, ZeroBubbleSchedule(ranks, micro_batches), rank),
                    (p - 1) / (3 * m + p - 1), 1e-12);
        EXPECT_NEAR(Bubble(macs, LayerwiseSchedule(ranks, micro_batches), rank), 1 - 1 / p, 1e-12);
        const std::vector<int64_t> twice(2 * ranks, 5);
        EXPECT_NEAR(Bubble(twice, *InterleavedSchedule(ranks, 2, micro_batches), rank),
                    (p - 1) / (2 * m + p - 1), 1e-12);
        // V-shaped: p - 1 forwards of a stage, which is half a rank's blocks, beside 6 m
        // (named_schedules.h).
        if (m >= 2 * p) {
          const double ramp = (p - 1) / (6 * m + p - 1);
          EXPECT_NEAR(Bubble(twice, ZeroBubbleVSchedule(ranks, micro_batches), rank), ramp, 1e-12);
          EXPECT_NEAR(Bubble(twice, *DualPipeVSchedule(ranks, micro_batches), rank), ramp, 1e-12);
        }
      }
    }
  }
}

// One micro-batch: each rank waits while the others work, 1 : 3.
TEST(BubbleFractionTest, CountsWhatStagesCost) {
  for (const Checkpointing checkpointing : {Checkpointing::kAlways, Checkpointing::kNever}) {
    EXPECT_NEAR(Bubble({10, 30}, GPipeSchedule(2, 1), 0, checkpointing), 0.75, 1e-12);
    EXPECT_NEAR(Bubble({10, 30}, GPipeSchedule(2, 1), 1, checkpointing), 0.25, 1e-12);
  }
  // Two: the second rank is busy from the end of the first forward on; forwards of 10 and 30,
  // backwards of 20 and 60, and the last backward of the first rank.
  EXPECT_NEAR(Bubble({10, 30}, GPipeSchedule(2, 2), 1), 1 - 180.0 / 210, 1e-12);
  EXPECT_NEAR(Bubble({10, 30}, GPipeSchedule(2, 2), 0), 1 - 60.0 / 210, 1e-12);
  // What is made again makes both backwards longer, by 10 and 30.
  EXPECT_NEAR(Bubble({10, 30}, GPipeSchedule(2, 2), 1, Checkpointing::kAlways), 1 - 240.0 / 280,
              1e-12);
}

// Forward costs 1, the halves of backward 2 and 1: the first rank ends after seven and works four.
TEST(BubbleFractionTest, WhatIsMadeAgainIsAPartOfTheFirstHalfOfABackward) {
  EXPECT_NEAR(Bubble({5, 5}, ZeroBubbleSchedule(2, 1), 0, Checkpointing::kAlways), 3.0 / 7, 1e-12);
  EXPECT_NEAR(Bubble({5, 5}, ZeroBubbleSchedule(2, 1), 0, Checkpointing::kNever), 2.0 / 5, 1e-12);
}

TEST(BubbleFractionTest, BlocksOfAModelThatStatesNoCostsCountAlike) {
  EXPECT_NEAR(Bubble({0, 0}, GPipeSchedule(2, 3), 0), 1.0 / 4, 1e-12);
}

TEST(CheckpointingTest, SaysWhichMicroBatchesAreMadeAgain) {
  EXPECT_EQ(ActivationsOf(0, 2, Checkpointing::kAlways), Activations::kRecompute);
  EXPECT_EQ(ActivationsOf(1, 2, Checkpointing::kAlways), Activations::kRecompute);
  EXPECT_EQ(ActivationsOf(0, 2, Checkpointing::kExceptLast), Activations::kRecompute);
  EXPECT_EQ(ActivationsOf(1, 2, Checkpointing::kExceptLast), Activations::kKeep);
  EXPECT_EQ(ActivationsOf(0, 1, Checkpointing::kExceptLast), Activations::kKeep);
  EXPECT_EQ(ActivationsOf(0, 2, Checkpointing::kNever), Activations::kKeep);
  EXPECT_DOUBLE_EQ(MeanForwards(4, Checkpointing::kAlways), 2);
  EXPECT_DOUBLE_EQ(MeanForwards(4, Checkpointing::kExceptLast), 1.75);
  EXPECT_DOUBLE_EQ(MeanForwards(4, Checkpointing::kNever), 1);
}

}  // namespace
}  // namespace lockstep
