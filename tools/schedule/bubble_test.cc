#include "tools/schedule/bubble.h"

#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "strategies/schedules/named_schedules.h"

namespace lockstep {
namespace {

// The formulas of the papers and the simulation of the lists know nothing of each other.
TEST(BubbleTest, SimulationsHaveTheClosedForms) {
  for (const StageCosts& costs : {StageCosts{1, 1, 1}, StageCosts{2, 3, 1}}) {
    for (const int ranks : {1, 2, 4, 5}) {
      for (const std::string name : {"gpipe", "1f1b", "interleaved_1f1b", "zb_h1"}) {
        const int stages_a_rank = name == "interleaved_1f1b" ? 3 : 1;
        const auto schedule = MakeSchedule(name, ranks, stages_a_rank, 2 * ranks);
        ASSERT_TRUE(schedule.ok()) << schedule.status();
        const auto formula = BubbleInClosedForm(*schedule, costs);
        ASSERT_TRUE(formula.has_value());
        const Simulation simulation =
            Simulate(*schedule, std::vector<StageCosts>(schedule->stages(), costs));
        EXPECT_NEAR(simulation.bubble_fraction(), formula->fraction, 1e-12)
            << name << " " << ranks << " " << costs.forward;
      }
    }
  }
}

TEST(BubbleTest, VShapedSchedulesHaveTheClosedFormForEqualCosts) {
  for (const int ranks : {1, 2, 4, 5}) {
    for (const Schedule& schedule :
         {ZeroBubbleVSchedule(ranks, 2 * ranks - 1), ZeroBubbleVSchedule(ranks, 4 * ranks),
          *DualPipeVSchedule(ranks, 2 * ranks), *DualPipeVSchedule(ranks, 4 * ranks)}) {
      const auto formula = BubbleInClosedForm(schedule, {2, 2, 2});
      ASSERT_TRUE(formula.has_value());
      const Simulation simulation =
          Simulate(schedule, std::vector<StageCosts>(schedule.stages(), {2, 2, 2}));
      EXPECT_NEAR(simulation.bubble_fraction(), formula->fraction, 1e-12)
          << schedule.name << " " << ranks;
      EXPECT_FALSE(BubbleInClosedForm(schedule, {2, 3, 1}).has_value());
    }
  }
  EXPECT_FALSE(BubbleInClosedForm(ZeroBubbleVSchedule(4, 6), {}).has_value());
}

TEST(BubbleTest, AreNumbersOfThePapers) {
  EXPECT_DOUBLE_EQ(BubbleInClosedForm(GPipeSchedule(4, 4), {})->fraction, 3.0 / 7);
  EXPECT_DOUBLE_EQ(BubbleInClosedForm(OneForwardOneBackwardSchedule(4, 8), {})->fraction, 3.0 / 11);
  EXPECT_DOUBLE_EQ(BubbleInClosedForm(*InterleavedSchedule(4, 2, 8), {})->fraction, 3.0 / 19);
  EXPECT_DOUBLE_EQ(BubbleInClosedForm(ZeroBubbleSchedule(4, 8), {})->fraction, 3.0 / 27);
  EXPECT_DOUBLE_EQ(BubbleInClosedForm(ZeroBubbleVSchedule(4, 8), {})->fraction, 3.0 / 51);
}

TEST(BubbleTest, RanksThatTakeTurnsWaitForAllOthers) {
  const auto turns =
      ScheduleFromCsv("0F0,0B0,0F1,0B1\n1F0,1B0,1F1,1B1\n2F0,2B0,2F1,2B1", "layerwise");
  ASSERT_TRUE(turns.ok());
  EXPECT_DOUBLE_EQ(BubbleInClosedForm(*turns, {})->fraction, 2.0 / 3);
  EXPECT_DOUBLE_EQ(Simulate(*turns, std::vector<StageCosts>(3)).bubble_fraction(), 2.0 / 3);
}

TEST(BubbleTest, OthersHaveNone) {
  Schedule mine = GPipeSchedule(2, 2);
  mine.name = "mine";
  EXPECT_FALSE(BubbleInClosedForm(mine, {}).has_value());
  EXPECT_FALSE(BubbleInClosedForm(ZeroBubbleSchedule(4, 2), {}).has_value());
}

}  // namespace
}  // namespace lockstep
