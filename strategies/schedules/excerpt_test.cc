#include "strategies/schedules/excerpt.h"

#include <cstdint>
#include <set>
#include <string>
#include <tuple>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "strategies/schedules/named_schedules.h"

namespace lockstep {
namespace {

using ::testing::ElementsAre;

// What is done between the first micro-batch of a shard and its last: shard, stage, kind.
std::set<std::tuple<int64_t, int, ActionKind>> Between(const Schedule& schedule, int64_t of_shard) {
  std::set<std::tuple<int64_t, int, ActionKind>> between;
  for (const auto& actions : schedule.ranks) {
    for (const Action& action : actions) {
      const int64_t at = action.micro_batch % of_shard;
      if (at == 0 || at + 1 == of_shard) continue;
      between.insert({action.micro_batch / of_shard, action.stage, action.kind});
    }
  }
  return between;
}

TEST(ExcerptTest, EachStageDoesAllThatItDoesInTheWhole) {
  for (const std::string& name : ScheduleNames()) {
    for (const int shards : {1, 3}) {
      for (const int of_shard : {2, 3, 4, 16, 24}) {
        if (name == "dualpipe_v" && shards * of_shard < 8) continue;
        if (name == "interleaved_1f1b" && shards * of_shard % 4 != 0) continue;
        SCOPED_TRACE(name + ", " + std::to_string(shards) + " x " + std::to_string(of_shard));
        const auto whole = MakeSchedule(name, 4, DefaultStagesPerRank(name), shards * of_shard);
        ASSERT_TRUE(whole.ok()) << whole.status();
        const Schedule excerpt = ExcerptOf(*whole, of_shard);
        EXPECT_TRUE(Validate(excerpt).ok()) << Validate(excerpt);
        ASSERT_EQ(excerpt.micro_batches % shards, 0);
        const int few = excerpt.micro_batches / shards;
        EXPECT_LE(few, of_shard);
        if (of_shard >= 16) {
          EXPECT_LE(few, name == "dualpipe_v" ? 6 : 3);
        }
        EXPECT_EQ(Between(excerpt, few), Between(*whole, of_shard));
      }
    }
  }
}

// Halved backwards are few, and at other micro-batches on each rank.
TEST(ExcerptTest, IsShortAlsoForManyRanks) {
  const auto whole = DualPipeVSchedule(32, 96);
  ASSERT_TRUE(whole.ok()) << whole.status();
  EXPECT_EQ(ExcerptOf(*whole, 96).micro_batches, 4);
}

TEST(ExcerptTest, KeepsTheOrder) {
  const Schedule whole = OneForwardOneBackwardSchedule(2, 5);
  const Schedule excerpt = ExcerptOf(whole, 5);
  EXPECT_EQ(ScheduleToCsv(whole),
            "0F0,0F1,0B0,0F2,0B1,0F3,0B2,0F4,0B3,0B4\n"
            "1F0,1B0,1F1,1B1,1F2,1B2,1F3,1B3,1F4,1B4\n");
  EXPECT_EQ(ScheduleToCsv(excerpt), "0F0,0F1,0B0,0B1,0F2,0B2\n1F0,1B0,1F1,1B1,1F2,1B2\n");
  EXPECT_EQ(excerpt.micro_batches, 3);
  EXPECT_THAT(excerpt.rank_of_stage, ElementsAre(0, 1));
}

}  // namespace
}  // namespace lockstep
