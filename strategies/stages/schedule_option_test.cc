#include "strategies/stages/schedule_option.h"

#include <string>

#include "absl/strings/str_cat.h"
#include "core/base/file.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "strategies/schedules/named_schedules.h"

namespace lockstep {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

absl::StatusOr<Schedule> Read(const std::string& table, int ranks, int micro_batches) {
  const auto config = Config::FromString("[mine]\n" + table, "a.toml");
  EXPECT_TRUE(config.ok()) << config.status();
  Settings settings;
  settings.mesh.pp = ranks;
  settings.cut.micro_batches = micro_batches;
  ConfigReader reader(config->Table("mine"));
  Schedule schedule = ReadSchedule(reader, settings, Divided::kNothing);
  if (absl::Status status = reader.Finish(); !status.ok()) return status;
  return schedule;
}

std::string Problem(const std::string& table, int ranks = 2, int micro_batches = 4) {
  return std::string(Read(table, ranks, micro_batches).status().message());
}

TEST(ReadScheduleTest, HasADefault) {
  const auto schedule = Read("", 3, 5);
  ASSERT_TRUE(schedule.ok()) << schedule.status();
  EXPECT_EQ(schedule->ranks, OneForwardOneBackwardSchedule(3, 5).ranks);
}

TEST(ReadScheduleTest, MakesThoseThatHaveNames) {
  for (const std::string& name : ScheduleNames()) {
    const auto schedule = Read(absl::StrCat("schedule = \"", name, "\""), 2, 4);
    ASSERT_TRUE(schedule.ok()) << schedule.status();
    EXPECT_EQ(schedule->name, name);
    EXPECT_EQ(schedule->ranks, MakeSchedule(name, 2, DefaultStagesPerRank(name), 4)->ranks);
  }
  const auto interleaved = Read("schedule = \"interleaved_1f1b\"\nstages_per_rank = 3", 2, 4);
  ASSERT_TRUE(interleaved.ok()) << interleaved.status();
  EXPECT_EQ(interleaved->stages(), 6);
  const auto v = Read("schedule = \"zb_v\"\nstages_per_rank = 2", 2, 4);
  ASSERT_TRUE(v.ok()) << v.status();
  EXPECT_EQ(v->stages(), 4);
}

TEST(ReadScheduleTest, ReadsFiles) {
  const std::string path = ::testing::TempDir() + "/one.csv";
  ASSERT_TRUE(WriteFileAtomically(path, ScheduleToCsv(ZeroBubbleSchedule(2, 4))).ok());
  const std::string table = absl::StrCat("schedule_file = \"", path, "\"\n");
  const auto schedule = Read(table, 2, 4);
  ASSERT_TRUE(schedule.ok()) << schedule.status();
  EXPECT_EQ(schedule->ranks, ZeroBubbleSchedule(2, 4).ranks);
  EXPECT_THAT(Problem(table, 3), AllOf(HasSubstr("mine.schedule_file cannot be run"),
                                       HasSubstr("2 rows, one a rank, but mesh.pp is 3")));
  EXPECT_THAT(Problem(table, 2, 5), HasSubstr("4 micro-batches, but a rank runs 5 in one go"));
  EXPECT_THAT(Problem(table + "stages_per_rank = 1"), HasSubstr("says all"));
}

TEST(ReadScheduleTest, ReadsActions) {
  const std::string table = "actions = \"\"\"\n0F0,0F1,0B0,0B1\n1F0,1B0,1F1,1B1\n\"\"\"\n";
  const auto schedule = Read(table, 2, 2);
  ASSERT_TRUE(schedule.ok()) << schedule.status();
  EXPECT_EQ(schedule->ranks, OneForwardOneBackwardSchedule(2, 2).ranks);
  EXPECT_THAT(Problem(table, 3), AllOf(HasSubstr("mine.actions cannot be run"),
                                       HasSubstr("2 rows, one a rank, but mesh.pp is 3")));
  EXPECT_THAT(Problem(table, 2, 5), HasSubstr("2 micro-batches, but a rank runs 5 in one go"));
  EXPECT_THAT(Problem(table + "schedule = \"1f1b\""), HasSubstr("mine.actions says all"));
  EXPECT_THAT(Problem(table + "schedule_file = \"a.csv\""), HasSubstr("leave schedule_file out"));
  EXPECT_THAT(Problem("actions = \"0F0,0X0\"", 1, 1),
              HasSubstr("pipeline.actions, row 1, cell 2: '0X0'"));
}

// Three shards of four micro-batches: all at once, but where blocks' gradients are summed together
// and halves of backwards would mix those of two shards.
TEST(ReadScheduleTest, RunsAllShardsOfARankInOneGoWhereItCan) {
  const auto micro_batches = [](const std::string& schedule, Divided divided) {
    const auto config = Config::FromString("[mine]\nschedule = \"" + schedule + "\"", "a.toml");
    Settings settings;
    settings.mesh.pp = 2;
    settings.cut.shards = 3;
    settings.cut.micro_batches = 4;
    ConfigReader reader(config->Table("mine"));
    return ReadSchedule(reader, settings, divided).micro_batches;
  };
  EXPECT_EQ(micro_batches("1f1b", Divided::kNothing), 12);
  EXPECT_EQ(micro_batches("1f1b", Divided::kParameters), 12);
  EXPECT_EQ(micro_batches("zb_h1", Divided::kNothing), 12);
  EXPECT_EQ(micro_batches("zb_h1", Divided::kOptimizerState), 4);
}

TEST(ReadScheduleTest, RefusesWhatCannotBeMadeOrRun) {
  EXPECT_THAT(Problem("schedule = \"gpip\""),
              AllOf(HasSubstr("mine.schedule cannot be run"), HasSubstr("'gpip'")));
  EXPECT_THAT(Problem("stages_per_rank = 0"), HasSubstr("mine.stages_per_rank"));
  EXPECT_THAT(Problem("schedule = \"1f1b\"\nstages_per_rank = 2"), HasSubstr("one stage a rank"));
  EXPECT_THAT(Problem("schedule = \"interleaved_1f1b\"", 3, 4), HasSubstr("4 do not divide by 3"));
  EXPECT_THAT(
      Problem("schedule = \"zb_v\"\nstages_per_rank = 1"),
      AllOf(HasSubstr("mine.schedule cannot be run"), HasSubstr("zb_v has 2 stages a rank")));
  EXPECT_THAT(Problem("schedule = \"dualpipe_v\"", 2, 3),
              HasSubstr("at least twice as many micro-batches as ranks, 4 for 2, but there are 3"));
  EXPECT_THAT(Problem("schedule_file = \"/no/such.csv\""), HasSubstr("/no/such.csv"));
  const std::string path = ::testing::TempDir() + "/broken.csv";
  ASSERT_TRUE(WriteFileAtomically(path, "0F0,0B0\n1F0,1F0,1B0\n").ok());
  EXPECT_THAT(Problem(absl::StrCat("schedule_file = \"", path, "\""), 2, 1),
              HasSubstr("rank 1, action 1 (F0): repeats rank 1, action 0 (F0)"));
  ASSERT_TRUE(WriteFileAtomically(path, "0F0,0F1,0B1,0B0\n1F0,1F1,1B1,1B0\n").ok());
  EXPECT_THAT(Problem(absl::StrCat("schedule_file = \"", path, "\""), 2, 2),
              AllOf(HasSubstr("mine.schedule_file cannot be run"),
                    HasSubstr("rank 0, action 2 (B1): it is micro-batch 0's turn"),
                    HasSubstr("rank 1, action 2 (B1): it is micro-batch 0's turn")));
}

}  // namespace
}  // namespace lockstep
