#include "strategies/stages/plan.h"

#include <limits>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "strategies/schedules/named_schedules.h"
#include "strategies/stages/testing/model_of_costs.h"

namespace lockstep {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

BalanceOption Given(const std::vector<int64_t>& balance) {
  return {.by = BalanceOption::By::kGiven, .given = balance};
}

TEST(CheckPlanTest, AcceptsABalanceOfAllStages) {
  const Model model = ModelOfCosts({1, 1, 1, 1});
  EXPECT_TRUE(CheckPlan(model, GPipeSchedule(2, 1), {}).ok());
  EXPECT_TRUE(CheckPlan(model, GPipeSchedule(2, 1), Given({1, 3})).ok());
  const Schedule interleaved = *InterleavedSchedule(2, 2, 2);
  EXPECT_TRUE(CheckPlan(model, interleaved, {}).ok());
  EXPECT_TRUE(CheckPlan(model, interleaved, Given({1, 1, 1, 1})).ok());
}

TEST(CheckPlanTest, RefusesWhatCannotBeDivided) {
  const auto problem = [](const Schedule& schedule, const BalanceOption& option) {
    const absl::Status status = CheckPlan(ModelOfCosts({1, 1, 1, 1}), schedule, option);
    EXPECT_TRUE(absl::IsInvalidArgument(status)) << status;
    return std::string(status.message());
  };
  EXPECT_THAT(problem(GPipeSchedule(5, 1), {}),
              AllOf(HasSubstr("mesh.pp is 5, but the model has 4 blocks"),
                    HasSubstr("use mesh.pp = 4 or less")));
  const auto of_two = [&](const std::vector<int64_t>& balance) {
    return problem(GPipeSchedule(2, 1), Given(balance));
  };
  EXPECT_THAT(of_two({4}), HasSubstr("pipeline.balance = [4] has 1 stages, but mesh.pp is 2"));
  EXPECT_THAT(of_two({1, 2}),
              AllOf(HasSubstr("pipeline.balance = [1, 2] does not sum up to the model's 4 blocks "
                              "(b0, b1, b2, b3)"),
                    HasSubstr("with \"cost\", \"time\" or \"size\" in its place the stages are "
                              "evened out")));
  EXPECT_THAT(of_two({4, 0}), HasSubstr("leaves a stage without blocks"));
  EXPECT_THAT(of_two({5, -1}), HasSubstr("leaves a stage without blocks"));
  EXPECT_THAT(of_two({2, 1, 1}), HasSubstr("has 3 stages, but mesh.pp is 2"));
  const int64_t huge = std::numeric_limits<int64_t>::max();
  EXPECT_THAT(of_two({huge, huge}), HasSubstr("does not sum up"));
  const Schedule interleaved = *InterleavedSchedule(2, 2, 2);
  EXPECT_THAT(problem(*InterleavedSchedule(2, 3, 2), {}),
              AllOf(HasSubstr("pipeline has 6 stages on 2 ranks, but the model has 4 blocks"),
                    HasSubstr("use fewer stages")));
  EXPECT_THAT(problem(interleaved, Given({2, 2})),
              HasSubstr("pipeline.balance = [2, 2] has 2 stages, but pipeline has 4 stages on 2 "
                        "ranks"));
  EXPECT_THAT(problem(interleaved, Given({1, 1, 2, 0})), HasSubstr("without blocks"));
  EXPECT_THAT(problem(interleaved, Given({1, 1, 1, 2})),
              AllOf(HasSubstr("pipeline.balance"), HasSubstr("4 blocks")));
}

StagePlan Plan(const std::vector<int64_t>& macs, const Schedule& schedule,
               const BalanceOption& option) {
  return MakePlan(ModelOfCosts(macs), {}, schedule, option);
}

std::vector<int64_t> SizesOf(const StagePlan& plan) {
  std::vector<int64_t> sizes;
  for (const BlockRange& stage : plan.stages) sizes.push_back(stage.size());
  return sizes;
}

TEST(MakePlanTest, DividesTheBlocksAmongTheStagesOfTheSchedule) {
  const StagePlan given = Plan({1, 1, 1, 1}, GPipeSchedule(2, 1), Given({1, 3}));
  EXPECT_THAT(SizesOf(given), ElementsAre(1, 3));
  EXPECT_THAT(given.rank_of_stage, ElementsAre(0, 1));
  EXPECT_THAT(SizesOf(Plan({1, 2, 3, 4, 5, 6}, GPipeSchedule(2, 1), {})), ElementsAre(4, 2));
  EXPECT_THAT(SizesOf(Plan({8, 2, 3, 4}, GPipeSchedule(2, 1), {})), ElementsAre(1, 3));
  // A model that does not state its costs.
  EXPECT_THAT(SizesOf(Plan({0, 0, 0, 0}, GPipeSchedule(2, 1), {})), ElementsAre(2, 2));
  for (const StagePlan& plan : {given, Plan({8, 2, 3, 4}, GPipeSchedule(2, 1), {})}) {
    EXPECT_EQ(plan.stages[0].begin, 0);
    EXPECT_EQ(plan.stages[1].begin, plan.stages[0].end);
    EXPECT_EQ(plan.stages[1].end, 4);
  }
}

TEST(MakePlanTest, StagesAreWhereTheScheduleHasThem) {
  const auto v = ScheduleFromCsv("0F0,3F0,3B0,0B0\n1F0,2F0,2B0,1B0\n", "v");
  ASSERT_TRUE(v.ok()) << v.status();
  const StagePlan plan = Plan({1, 1, 1, 1, 1, 1}, *v, Given({1, 2, 2, 1}));
  EXPECT_THAT(plan.rank_of_stage, ElementsAre(0, 1, 1, 0));
  EXPECT_EQ(plan.last_rank(), 0);
  const auto ranges = plan.RangesByRank();
  ASSERT_EQ(ranges.size(), 2u);
  ASSERT_EQ(ranges[0].size(), 2u);
  EXPECT_EQ(ranges[0][0].begin, 0);
  EXPECT_EQ(ranges[0][1].begin, 5);
  EXPECT_EQ(ranges[1][1].begin, 3);
  EXPECT_EQ(plan.StageOfBlock(2), 1);
}

}  // namespace
}  // namespace lockstep
