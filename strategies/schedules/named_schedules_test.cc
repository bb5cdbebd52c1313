#include "strategies/schedules/named_schedules.h"

#include <algorithm>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "strategies/schedules/simulation.h"

namespace lockstep {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

std::vector<StageCosts> Alike(const Schedule& schedule) {
  return std::vector<StageCosts>(schedule.rank_of_stage.size());
}

// Time that each rank waits, where a forward, and each half of a backward, takes 1.
double Waits(const Schedule& schedule) {
  const Simulation simulation = Simulate(schedule, Alike(schedule));
  return simulation.total * simulation.bubble_fraction();
}

constexpr struct {
  int ranks, micro_batches;
} kSizes[] = {{1, 1}, {1, 5}, {2, 1}, {2, 4}, {3, 2}, {3, 7}, {4, 4}, {4, 9}, {8, 16}};

TEST(SchedulesTest, AreValidForAnyNumberOfMicroBatches) {
  for (const auto [ranks, micro_batches] : kSizes) {
    for (const Schedule& schedule :
         {GPipeSchedule(ranks, micro_batches), OneForwardOneBackwardSchedule(ranks, micro_batches),
          ZeroBubbleSchedule(ranks, micro_batches)}) {
      const absl::Status status = Validate(schedule);
      EXPECT_TRUE(status.ok()) << ranks << " x " << micro_batches << ": " << status;
    }
    for (const int stages : {1, 2, 3}) {
      const auto schedule = InterleavedSchedule(ranks, stages, micro_batches * ranks);
      ASSERT_TRUE(schedule.ok());
      EXPECT_TRUE(Validate(*schedule).ok()) << Validate(*schedule);
    }
  }
}

// Gradients of micro-batches add up in their order, as those of single: then they have its bits.
TEST(SchedulesTest, BackwardsComeInTheOrderOfTheMicroBatches) {
  for (const std::string& name : ScheduleNames()) {
    const int stages = name == "interleaved_1f1b" ? 2 : DefaultStagesPerRank(name);
    const Schedule schedule = MakeSchedule(name, 3, stages, 6).value();
    std::map<std::pair<int, bool>, int> next;  // by stage and half of the backward
    for (const auto& actions : schedule.ranks) {
      for (const auto& [kind, stage, micro_batch] : actions) {
        if (kind == ActionKind::kBackward || kind == ActionKind::kInputGradient) {
          EXPECT_EQ(micro_batch, (next[{stage, false}]++)) << name;
        }
        if (kind == ActionKind::kBackward || kind == ActionKind::kWeightGradient) {
          EXPECT_EQ(micro_batch, (next[{stage, true}]++)) << name;
        }
      }
    }
  }
}

// The published bubbles: p - 1 of a forward and a backward; divided by the stages a rank; a third
// where weight gradients fill it.
TEST(SchedulesTest, WaitAsLongAsTheirPapersSay) {
  for (const auto [p, m] : kSizes) {
    EXPECT_DOUBLE_EQ(Waits(GPipeSchedule(p, m)), 3 * (p - 1));
    EXPECT_DOUBLE_EQ(Waits(OneForwardOneBackwardSchedule(p, m)), 3 * (p - 1));
    for (const int stages : {2, 3}) {
      // All stages together have `stages` times the work of one a rank.
      EXPECT_NEAR(Waits(*InterleavedSchedule(p, stages, p * m)), 3 * (p - 1), 1e-9);
    }
    if (m >= p) {
      EXPECT_NEAR(Waits(ZeroBubbleSchedule(p, m)), p - 1, 1e-9) << p << " x " << m;
    }
  }
}

TEST(SchedulesTest, KeepNoMoreActivationsThanTheyPromise) {
  for (const auto [p, m] : kSizes) {
    for (int rank = 0; rank < p; ++rank) {
      EXPECT_EQ(PeakActivations(GPipeSchedule(p, m), rank), m);
      EXPECT_EQ(PeakActivations(OneForwardOneBackwardSchedule(p, m), rank), std::min(m, p - rank));
      EXPECT_LE(PeakActivations(ZeroBubbleSchedule(p, m), rank), std::min(m, p));
    }
  }
}

TEST(SchedulesTest, GoThroughCsvAndBack) {
  for (const std::string& name : ScheduleNames()) {
    const int stages = name == "interleaved_1f1b" ? 2 : DefaultStagesPerRank(name);
    const auto schedule = MakeSchedule(name, 4, stages, 8);
    ASSERT_TRUE(schedule.ok()) << schedule.status();
    const auto read = ScheduleFromCsv(ScheduleToCsv(*schedule), name);
    ASSERT_TRUE(read.ok()) << read.status();
    EXPECT_EQ(read->ranks, schedule->ranks);
    EXPECT_EQ(read->rank_of_stage, schedule->rank_of_stage);
    EXPECT_EQ(read->micro_batches, 8);
  }
  EXPECT_EQ(ScheduleToCsv(GPipeSchedule(2, 2)), "0F0,0F1,0B0,0B1\n1F0,1F1,1B0,1B1\n");
}

TEST(SchedulesTest, CsvFaultsNameRowAndCell) {
  const auto problem = [](const std::string& csv) {
    return std::string(ScheduleFromCsv(csv, "mine.csv").status().message());
  };
  EXPECT_THAT(problem("0F0,0B0\n1F0,1X0\n"),
              AllOf(HasSubstr("mine.csv, row 2, cell 2"), HasSubstr("'1X0'"), HasSubstr("2F3")));
  EXPECT_THAT(problem("0F,0B0"), HasSubstr("row 1, cell 1"));
  EXPECT_THAT(problem("-1F0"), HasSubstr("'-1F0'"));
  EXPECT_THAT(problem("0F0,2F0"), HasSubstr("nobody runs stage 1"));
  EXPECT_THAT(problem("\n"), HasSubstr("no action"));
}

TEST(SchedulesTest, EmptyCellsOfCsvAreWaits) {
  const auto schedule = ScheduleFromCsv("0F0, ,0B0\n ,1F0,1B0\n", "mine.csv");
  ASSERT_TRUE(schedule.ok());
  EXPECT_EQ(schedule->ranks[0].size(), 2u);
  EXPECT_EQ(schedule->ranks[1].size(), 2u);
}

TEST(SchedulesTest, RefusesWhatItCannotMake) {
  EXPECT_THAT(std::string(MakeSchedule("gpip", 2, 1, 4).status().message()),
              AllOf(HasSubstr("'gpip'"), HasSubstr("1f1b")));
  EXPECT_THAT(std::string(MakeSchedule("1f1b", 2, 2, 4).status().message()),
              HasSubstr("one stage a rank, not 2; interleaved_1f1b takes several, zb_v and "
                        "dualpipe_v take 2"));
  EXPECT_THAT(std::string(MakeSchedule("zb_v", 2, 1, 4).status().message()),
              HasSubstr("the schedule zb_v has 2 stages a rank, not 1"));
  EXPECT_THAT(std::string(MakeSchedule("dualpipe_v", 2, 3, 4).status().message()),
              HasSubstr("the schedule dualpipe_v has 2 stages a rank, not 3"));
  EXPECT_THAT(std::string(InterleavedSchedule(4, 2, 6).status().message()),
              HasSubstr("6 do not divide by 4"));
}

}  // namespace
}  // namespace lockstep
