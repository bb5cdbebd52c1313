#include "strategies/schedules/simulation.h"

#include <vector>

#include "gtest/gtest.h"
#include "strategies/schedules/named_schedules.h"

namespace lockstep {
namespace {

TEST(SimulationTest, AStageBeginsWhenItsInputIsThere) {
  const Simulation simulation = Simulate(GPipeSchedule(2, 2), std::vector<StageCosts>(2));
  // F0 F1 .. .. B0 B0 B1 B1 behind rank 1's .. F0 F1 B0 B0 B1 B1
  ASSERT_EQ(simulation.ranks[1].size(), 4u);
  EXPECT_EQ(simulation.ranks[1][0].begin, 1);
  EXPECT_EQ(simulation.ranks[1][2].begin, 3);
  EXPECT_EQ(simulation.ranks[0][2].begin, 5);
  EXPECT_EQ(simulation.ranks[0][3].end, 9);
  EXPECT_EQ(simulation.total, 9);
  EXPECT_DOUBLE_EQ(simulation.bubble_fraction(), 3.0 / 9);
}

TEST(SimulationTest, TransfersDelayOtherRanksOnly) {
  const Simulation simulation = Simulate(GPipeSchedule(2, 1), std::vector<StageCosts>(2), 0.5);
  EXPECT_EQ(simulation.ranks[1][0].begin, 1.5);
  EXPECT_EQ(simulation.ranks[1][1].begin, 2.5);
  EXPECT_EQ(simulation.ranks[0][1].begin, 5);
}

TEST(SimulationTest, TheSlowestStageSetsThePace) {
  const std::vector<StageCosts> costs = {{1, 1, 1}, {2, 2, 2}, {1, 1, 1}};
  const Simulation simulation = Simulate(OneForwardOneBackwardSchedule(3, 10), costs);
  // The slow stage waits for its first input, 1; for its first gradient, 3, of which its next
  // forward fills 2; computes ten times 6; and leaves the first stage one backward, 2.
  EXPECT_DOUBLE_EQ(simulation.total, 1 + (3 - 2) + 10 * 6 + 2);
}

}  // namespace
}  // namespace lockstep
