#include "tools/compare/references.h"

#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace lockstep {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

RunRecord MakeRun(const std::string& strategy, int64_t shards, int64_t micro_batches) {
  RunRecord run;
  run.state = RunRecord::State::kComplete;
  run.workload = "w";
  run.strategy = strategy;
  run.shards = shards;
  run.micro_batches = micro_batches;
  run.tokens = run.features = 1;
  return run;
}

const std::vector<PlannedRun>& Programs() {
  static const std::vector<PlannedRun>& runs =
      *new std::vector<PlannedRun>{{.name = "w/single", .program = "/single"},
                                   {.name = "w/tp", .program = "/tp"},
                                   {.name = "w/other", .program = "/other"}};
  return runs;
}

TEST(MissingReferencesTest, AreRunsOfSingleCutAsTheOther) {
  RunRecord tp = MakeRun("tp", 1, 4);
  tp.features = 2;
  const std::vector<PlannedRun> missing =
      MissingReferences(Programs(), {MakeRun("single", 2, 2), tp, MakeRun("other", 2, 2)});
  ASSERT_EQ(missing.size(), 1u);
  EXPECT_EQ(missing[0].name, "w/single_1x4_f2");
  EXPECT_EQ(missing[0].program, "/single");
  EXPECT_THAT(missing[0].arguments,
              ElementsAre("--set", "cut.shards=1", "--set", "cut.micro_batches=4", "--set",
                          "cut.tokens=1", "--set", "cut.features=2"));
}

TEST(MissingReferencesTest, LeavesOfTokensAndFeaturesAreOfTheCut) {
  RunRecord tp = MakeRun("tp", 2, 2);
  tp.tokens = 4;
  const auto missing = MissingReferences(Programs(), {MakeRun("single", 2, 2), tp});
  ASSERT_EQ(missing.size(), 1u);
  EXPECT_EQ(missing[0].name, "w/single_2x2_t4");
}

TEST(MissingReferencesTest, OneServesAllThatAreCutSo) {
  EXPECT_EQ(MissingReferences(Programs(),
                              {MakeRun("single", 2, 2), MakeRun("tp", 1, 4), MakeRun("x", 1, 4)})
                .size(),
            1u);
  const std::vector<PlannedRun> both = MissingReferences(
      Programs(), {MakeRun("single", 2, 2), MakeRun("tp", 4, 1), MakeRun("x", 1, 4)});
  ASSERT_EQ(both.size(), 2u);
  EXPECT_EQ(both[0].name, "w/single_4x1");
  EXPECT_EQ(both[1].name, "w/single_1x4");
}

TEST(MissingReferencesTest, NeedARunOfSingleThatCameToItsEnd) {
  RunRecord single = MakeRun("single", 2, 2), tp = MakeRun("tp", 1, 4);
  single.state = RunRecord::State::kUnfinished;
  EXPECT_THAT(MissingReferences(Programs(), {single, tp}), IsEmpty());
  single.state = RunRecord::State::kComplete;
  single.workload = "another";
  EXPECT_THAT(MissingReferences(Programs(), {single, tp}), IsEmpty());
  single.workload = "w";
  tp.state = RunRecord::State::kMissing;
  EXPECT_THAT(MissingReferences(Programs(), {single, tp}), IsEmpty());
}

}  // namespace
}  // namespace lockstep
