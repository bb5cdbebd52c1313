// Conformance with torchgpipe, "pipeline": which stage runs what in which tick.
//
// Not here: its workers' queues, and copies as actions of their own. Transfers follow from the
// actions (schedule.h); that they run meanwhile tests strategies/stages/schedule_runner_test.cc.

#include <algorithm>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "strategies/schedules/named_schedules.h"
#include "strategies/schedules/simulation.h"
#include "strategies/stages/testing/probe.h"
#include "strategies/stages/testing/tested_pipeline.h"

namespace lockstep {
namespace {

using ::testing::ElementsAre;
using ::testing::UnorderedElementsAre;

using Task = std::pair<int, int>;  // micro-batch, stage
using Ticks = std::vector<std::vector<Task>>;

// What runs in each tick of the forward half, when all take as long.
Ticks ClockCycles(int micro_batches, int stages) {
  const Schedule schedule = GPipeSchedule(stages, micro_batches);
  const Simulation simulation =
      Simulate(schedule, std::vector<StageCosts>(static_cast<size_t>(stages)));
  Ticks ticks;
  for (const auto& rank : simulation.ranks) {
    for (const Simulation::Timed& timed : rank) {
      if (timed.action.kind != ActionKind::kForward) continue;
      const auto tick = static_cast<size_t>(timed.begin);
      if (ticks.size() <= tick) ticks.resize(tick + 1);
      ticks[tick].push_back({timed.action.micro_batch, timed.action.stage});
    }
  }
  return ticks;
}

TEST(PipelineTest, ClockCycles) {
  EXPECT_THAT(ClockCycles(1, 1), ElementsAre(ElementsAre(Task(0, 0))));
  EXPECT_THAT(ClockCycles(1, 3), ElementsAre(ElementsAre(Task(0, 0)), ElementsAre(Task(0, 1)),
                                             ElementsAre(Task(0, 2))));
  EXPECT_THAT(ClockCycles(3, 1), ElementsAre(ElementsAre(Task(0, 0)), ElementsAre(Task(1, 0)),
                                             ElementsAre(Task(2, 0))));
  EXPECT_THAT(
      ClockCycles(3, 3),
      ElementsAre(UnorderedElementsAre(Task(0, 0)), UnorderedElementsAre(Task(1, 0), Task(0, 1)),
                  UnorderedElementsAre(Task(2, 0), Task(1, 1), Task(0, 2)),
                  UnorderedElementsAre(Task(2, 1), Task(1, 2)), UnorderedElementsAre(Task(2, 2))));
  EXPECT_THAT(
      ClockCycles(4, 2),
      ElementsAre(UnorderedElementsAre(Task(0, 0)), UnorderedElementsAre(Task(1, 0), Task(0, 1)),
                  UnorderedElementsAre(Task(2, 0), Task(1, 1)),
                  UnorderedElementsAre(Task(3, 0), Task(2, 1)), UnorderedElementsAre(Task(3, 1))));
}

// In a run: each stage takes the micro-batches in their order, each after the stage before it.
TEST(PipelineTest, ForwardOrder) {
  Events events;
  const auto make_model = [&] {
    return MakeProbes({Recorded("0", events), Recorded("1", events), Recorded("2", events)});
  };
  const auto outcome = RunPipeline({.make_model = make_model, .schedule = GPipeSchedule(3, 4)});
  ASSERT_TRUE(outcome.ok()) << outcome.status();
  std::map<std::string, int64_t> at;
  for (const std::string& event : events.all()) at.emplace(event, at.size());
  ASSERT_EQ(at.size(), 3u * 4 * 2);
  const auto place = [&](const char* kind, int stage, int micro_batch) {
    return at.at(absl::StrCat(kind, stage, " ", micro_batch));
  };
  for (int stage = 0; stage < 3; ++stage) {
    for (int i = 0; i < 4; ++i) {
      EXPECT_LT(place("F", stage, i), place("B", stage, 0));
      if (i > 0) {
        EXPECT_LT(place("F", stage, i - 1), place("F", stage, i));
        EXPECT_LT(place("B", stage, i - 1), place("B", stage, i));
      }
      if (stage > 0) {
        EXPECT_LT(place("F", stage - 1, i), place("F", stage, i));
        EXPECT_GT(place("B", stage - 1, i), place("B", stage, i));
      }
    }
  }
}

}  // namespace
}  // namespace lockstep
