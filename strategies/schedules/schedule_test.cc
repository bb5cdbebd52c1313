#include "strategies/schedules/schedule.h"

#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace lockstep {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr auto F = ActionKind::kForward;
constexpr auto B = ActionKind::kBackward;
constexpr auto I = ActionKind::kInputGradient;
constexpr auto W = ActionKind::kWeightGradient;

// Two ranks of one stage each, one micro-batch.
Schedule Small() {
  return {.name = "small",
          .micro_batches = 1,
          .rank_of_stage = {0, 1},
          .ranks = {{{F, 0, 0}, {B, 0, 0}}, {{F, 1, 0}, {B, 1, 0}}}};
}

std::string Faults(const Schedule& schedule) { return std::string(Validate(schedule).message()); }

TEST(ScheduleTest, ActionsReadAsTheyAreWritten) {
  EXPECT_EQ(ToString({F, 2, 3}, /*with_stage=*/false), "F3");
  EXPECT_EQ(ToString({I, 2, 3}, /*with_stage=*/true), "2I3");
}

TEST(ScheduleTest, AcceptsWholeAndHalvedBackwards) {
  EXPECT_TRUE(Validate(Small()).ok());
  Schedule halves = Small();
  halves.ranks[1] = {{F, 1, 0}, {I, 1, 0}, {W, 1, 0}};
  EXPECT_TRUE(Validate(halves).ok());
}

TEST(ScheduleTest, NamesTheCellOfEachFault) {
  Schedule schedule = Small();
  schedule.ranks[0] = {{F, 0, 0}, {F, 0, 0}, {B, 0, 7}, {F, 5, 0}, {F, 1, 0}};
  EXPECT_THAT(Faults(schedule),
              AllOf(HasSubstr("rank 0, action 1 (F0): repeats rank 0, action 0 (F0)"),
                    HasSubstr("rank 0, action 2 (B7): there is no micro-batch 7, only 1"),
                    HasSubstr("rank 0, action 3 (F0): there is no stage 5, only 2"),
                    HasSubstr("rank 0, action 4 (F0): stage 1 belongs to rank 1"),
                    HasSubstr("rank 0, stage 0, micro-batch 0: no backward")));
}

TEST(ScheduleTest, EveryRankHasAStage) {
  Schedule schedule = Small();
  schedule.ranks.insert(schedule.ranks.begin() + 1, std::vector<Action>());
  schedule.rank_of_stage = {0, 2};
  EXPECT_EQ(Faults(schedule), "schedule small:\n  rank 1: has no stage");
}

TEST(ScheduleTest, TellsOfForgottenAndMixedHalves) {
  Schedule schedule = Small();
  schedule.ranks[0] = {{F, 0, 0}, {I, 0, 0}};
  schedule.ranks[1] = {{F, 1, 0}, {B, 1, 0}, {W, 1, 0}};
  EXPECT_THAT(Faults(schedule),
              AllOf(HasSubstr("stage 0, micro-batch 0: only the half of a backward for its input"),
                    HasSubstr("stage 1, micro-batch 0: a whole backward and a half of it")));
  schedule = Small();
  schedule.ranks[1] = {{B, 1, 0}};
  EXPECT_THAT(Faults(schedule), HasSubstr("rank 1, stage 1, micro-batch 0: no forward"));
}

TEST(ScheduleTest, ADeadlockShowsWhoWaitsForWhom) {
  Schedule schedule = Small();
  schedule.ranks[1] = {{B, 1, 0}, {F, 1, 0}};
  EXPECT_THAT(Faults(schedule),
              AllOf(HasSubstr("deadlock: rank 0, action 1 (B0) waits for rank 1, action 0 (B0)"),
                    HasSubstr("deadlock: rank 1, action 0 (B0) waits for rank 1, action 1 (F0)")));
}

TEST(ScheduleTest, CountsWhatWaitsForItsBackward) {
  Schedule schedule = Small();
  schedule.micro_batches = 3;
  schedule.ranks[0] = {{F, 0, 0}, {F, 0, 1}, {B, 0, 0}, {F, 0, 2}, {I, 0, 1}, {W, 0, 1}, {B, 0, 2}};
  EXPECT_EQ(PeakActivations(schedule, 0), 2);
  schedule.ranks[0] = {{F, 0, 0}, {I, 0, 0}, {F, 0, 1}, {W, 0, 0}};
  EXPECT_EQ(PeakActivations(schedule, 0), 2) << "weights still need the activations";
}

// Transfers are received in the order in which they were sent.
TEST(ScheduleTest, StagesTakeMicroBatchesInOneOrder) {
  Schedule schedule = {.name = "orders",
                       .micro_batches = 2,
                       .rank_of_stage = {0, 1},
                       .ranks = {{{F, 0, 0}, {F, 0, 1}, {B, 0, 1}, {B, 0, 0}},
                                 {{F, 1, 0}, {F, 1, 1}, {B, 1, 1}, {B, 1, 0}}}};
  EXPECT_TRUE(Validate(schedule).ok());  // backwards may be reversed
  schedule.ranks[0] = {{F, 0, 0}, {F, 0, 1}, {B, 0, 0}, {B, 0, 1}};
  EXPECT_THAT(Faults(schedule), HasSubstr("rank 1, action 2 (B1): stage 0 does rank 0, action 2 "
                                          "(B0) in its place"));
  schedule.ranks = {{{F, 0, 1}, {F, 0, 0}, {B, 0, 0}, {B, 0, 1}},
                    {{F, 1, 1}, {F, 1, 0}, {B, 1, 0}, {B, 1, 1}}};
  EXPECT_THAT(Faults(schedule), HasSubstr("rank 0, action 0 (F1): it is micro-batch 0's turn"));
}

}  // namespace
}  // namespace lockstep
