#include "strategies/schedules/schedule.h"

#include <string>
#include <vector>

#include "absl/strings/str_split.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace lockstep {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::SizeIs;

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

TEST(ScheduleTest, ARepetitionIsThatOfTheStagesRank) {
  Schedule schedule = Small();
  schedule.ranks[0].push_back({F, 1, 0});  // which has no part in it
  schedule.ranks[1].push_back({F, 1, 0});
  EXPECT_THAT(Faults(schedule),
              AllOf(HasSubstr("action 2 (F0): stage 1 belongs to rank 1"),
                    HasSubstr("rank 1, action 2 (F0): repeats rank 1, action 0")));
}

TEST(ScheduleTest, TellsOfTenFaultsAndCountsTheOthers) {
  Schedule schedule = Small();
  schedule.micro_batches = 1000;  // the lists are those of the first
  const std::vector<std::string> lines = absl::StrSplit(Faults(schedule), '\n');
  ASSERT_THAT(lines, SizeIs(12));
  EXPECT_EQ(lines[1], "  rank 0, stage 0, micro-batch 1: no forward");
  // Each of the other 999 lacks a forward and a backward on two stages.
  EXPECT_EQ(lines[11], "  and 3986 more");
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

// A gradient is a sum over micro-batches in order, and so are batch statistics.
TEST(ScheduleTest, StagesTakeMicroBatchesInTheirOrder) {
  Schedule schedule = {.name = "orders",
                       .micro_batches = 2,
                       .rank_of_stage = {0, 1},
                       .ranks = {{{F, 0, 0}, {F, 0, 1}, {B, 0, 0}, {B, 0, 1}},
                                 {{F, 1, 0}, {F, 1, 1}, {B, 1, 0}, {B, 1, 1}}}};
  EXPECT_TRUE(Validate(schedule).ok());
  schedule.ranks = {{{F, 0, 1}, {F, 0, 0}, {B, 0, 0}, {B, 0, 1}},
                    {{F, 1, 1}, {F, 1, 0}, {B, 1, 0}, {B, 1, 1}}};
  EXPECT_THAT(Faults(schedule),
              AllOf(HasSubstr("rank 0, action 0 (F1): it is micro-batch 0's turn at stage 0; "
                              "forwards go in the order of the micro-batches"),
                    HasSubstr("rank 1, action 0 (F1)")));
  schedule.ranks = {{{F, 0, 0}, {F, 0, 1}, {B, 0, 1}, {B, 0, 0}},
                    {{F, 1, 0}, {F, 1, 1}, {B, 1, 1}, {B, 1, 0}}};
  EXPECT_EQ(Faults(schedule),
            "schedule orders:\n"
            "  rank 0, action 2 (B1): it is micro-batch 0's turn at stage 0; backwards go in the "
            "order of the micro-batches\n"
            "  rank 1, action 2 (B1): it is micro-batch 0's turn at stage 1; backwards go in the "
            "order of the micro-batches");
}

// Either half adds to gradients, and so does a whole backward among halves.
TEST(ScheduleTest, HalvesOfBackwardsComeInTheirOrderToo) {
  Schedule schedule = {.name = "halves", .micro_batches = 2, .rank_of_stage = {0}, .ranks = {{}}};
  const auto faults_of = [&](std::vector<Action> backwards) {
    schedule.ranks[0] = {{F, 0, 0}, {F, 0, 1}};
    for (const Action& action : backwards) schedule.ranks[0].push_back(action);
    return Faults(schedule);
  };
  EXPECT_EQ(faults_of({{I, 0, 0}, {I, 0, 1}, {W, 0, 0}, {W, 0, 1}}), "");
  EXPECT_EQ(faults_of({{B, 0, 0}, {I, 0, 1}, {W, 0, 1}}), "");
  EXPECT_EQ(faults_of({{I, 0, 0}, {W, 0, 0}, {B, 0, 1}}), "");
  EXPECT_THAT(faults_of({{I, 0, 0}, {I, 0, 1}, {W, 0, 1}, {W, 0, 0}}),
              HasSubstr("rank 0, action 4 (W1): it is micro-batch 0's turn at stage 0; weight "
                        "gradients add up in the order of the micro-batches"));
  EXPECT_THAT(faults_of({{I, 0, 1}, {W, 0, 1}, {I, 0, 0}, {W, 0, 0}}),
              HasSubstr("rank 0, action 2 (I1): it is micro-batch 0's turn at stage 0; backwards"));
  // The whole backward of micro-batch 1 overtakes the weights of micro-batch 0.
  EXPECT_THAT(faults_of({{I, 0, 0}, {B, 0, 1}, {W, 0, 0}}),
              HasSubstr("rank 0, action 3 (B1): it is micro-batch 0's turn at stage 0; weight"));
}

// Several stages of a rank take turns as they like.
TEST(ScheduleTest, TheOrderIsThatOfEachStage) {
  const Schedule schedule = {.name = "two",
                             .micro_batches = 2,
                             .rank_of_stage = {0, 0},
                             .ranks = {{{F, 0, 0},
                                        {F, 1, 0},
                                        {B, 1, 0},
                                        {F, 0, 1},
                                        {F, 1, 1},
                                        {B, 1, 1},
                                        {B, 0, 0},
                                        {B, 0, 1}}}};
  EXPECT_EQ(Faults(schedule), "");
}

}  // namespace
}  // namespace lockstep
