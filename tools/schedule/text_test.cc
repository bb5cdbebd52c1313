#include "tools/schedule/text.h"

#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "strategies/schedules/named_schedules.h"

namespace lockstep {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

// What `write` makes of a schedule with these costs.
std::string Of(std::string (*write)(const TimedSchedule&), const Schedule& schedule,
               std::vector<StageCosts> costs = {}, double transfer = 0) {
  costs.resize(schedule.stages(), costs.empty() ? StageCosts() : costs.back());
  return write({.schedule = schedule,
                .costs = costs,
                .transfer = transfer,
                .simulation = Simulate(schedule, costs, transfer)});
}

TEST(ScheduleTitleTest, TellsTheSize) {
  EXPECT_EQ(ScheduleTitle(GPipeSchedule(4, 8)), "gpipe: 4 ranks, 8 micro-batches");
  EXPECT_EQ(ScheduleTitle(GPipeSchedule(1, 1)), "gpipe: 1 rank, 1 micro-batch");
  EXPECT_EQ(ScheduleTitle(*InterleavedSchedule(2, 3, 4)),
            "interleaved_1f1b: 2 ranks with 3 stages each, 4 micro-batches");
}

// The figure of the GPipe paper (Huang et al., 2019), where both passes take as long.
TEST(GridTest, GPipeIsFilledAndDrained) {
  EXPECT_EQ(Of(GridText, GPipeSchedule(3, 3), {{1, 0.5, 0.5}}),
            "time    0              5              10\n"
            "rank 0  F0 F1 F2 .  .  .  .  B0 B1 B2\n"
            "rank 1  .  F0 F1 F2 .  .  B0 B1 B2 .\n"
            "rank 2  .  .  F0 F1 F2 B0 B1 B2 .  .\n");
}

// The figure of PipeDream-Flush in "Megatron-LM" (SC 2021), a backward twice as long as a forward.
TEST(GridTest, OneForwardOneBackwardAlternates) {
  EXPECT_EQ(Of(GridText, OneForwardOneBackwardSchedule(2, 3)),
            "time    0              5              10\n"
            "rank 0  F0 F1 .  .  B0=== F2 B1=== .  B2===\n"
            "rank 1  .  F0 B0=== F1 B1=== F2 B2=== .  .\n");
}

TEST(GridTest, ShowsHalvesStagesAndTransfers) {
  EXPECT_THAT(Of(GridText, ZeroBubbleSchedule(2, 2)), HasSubstr("rank 1  .  F0 I0 F1 I1 W0 W1"));
  EXPECT_THAT(Of(GridText, *InterleavedSchedule(2, 2, 2)), HasSubstr("rank 0  0F0 0F1 2F0 2F1"));
  EXPECT_THAT(Of(GridText, GPipeSchedule(2, 1), {}, 1), HasSubstr("rank 1  .  .  F0 B0==="));
}

// One slow action among very many short ones does not make a row of thousands of characters.
TEST(GridTest, StaysReadableWhateverTheCosts) {
  const std::string grid = Of(GridText, GPipeSchedule(2, 4), {{1e-3, 1, 1}, {1, 1, 1000}});
  EXPECT_LT(grid.size(), 5000u);
  EXPECT_THAT(grid, HasSubstr("B3"));
}

TEST(BubbleTextTest, HasSimulationAndFormula) {
  EXPECT_EQ(Of(BubbleText, OneForwardOneBackwardSchedule(4, 8)),
            "bubble 27.3 % of all ranks' time; in closed form (p-1)/(m+p-1) = 27.3 %");
  EXPECT_EQ(Of(BubbleText, *InterleavedSchedule(4, 2, 8)),
            "bubble 15.8 % of all ranks' time; in closed form (p-1)/(vm+p-1) = 15.8 %");
  EXPECT_THAT(Of(BubbleText, ZeroBubbleSchedule(4, 8)), HasSubstr("= 11.1 %"));
  EXPECT_THAT(Of(BubbleText, GPipeSchedule(2, 2), {}, 0.5),
              HasSubstr("= 33.3 % without transfers"));
  EXPECT_THAT(Of(BubbleText, GPipeSchedule(2, 2), {{1, 1, 1}, {2, 2, 2}}),
              Not(HasSubstr("closed form")));
}

// The promises of the schedules: all micro-batches with GPipe, p - rank with 1F1B.
TEST(RankTableTest, HasTimesAndActivations) {
  EXPECT_EQ(Of(RankTable, OneForwardOneBackwardSchedule(3, 6)),
            "  rank  stages  works  waits  waits, %  activations in flight\n"
            "     0  0          18      6      25.0                      3\n"
            "     1  1          18      6      25.0                      2\n"
            "     2  2          18      6      25.0                      1\n");
  EXPECT_THAT(Of(RankTable, GPipeSchedule(2, 6)), HasSubstr("14.3                      6\n"));
  EXPECT_THAT(Of(RankTable, *InterleavedSchedule(2, 2, 2)), HasSubstr("  0 2  "));
}

}  // namespace
}  // namespace lockstep
