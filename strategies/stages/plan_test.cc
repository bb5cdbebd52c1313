#include "strategies/stages/plan.h"

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
  EXPECT_THAT(problem(GPipeSchedule(5, 1), {}), HasSubstr("mesh.pp is 5"));
  EXPECT_THAT(problem(GPipeSchedule(2, 1), Given({4})),
              HasSubstr("pipeline.balance = [4] has 1 stages, but mesh.pp is 2"));
  const Schedule interleaved = *InterleavedSchedule(2, 2, 2);
  EXPECT_THAT(problem(*InterleavedSchedule(2, 3, 2), {}),
              HasSubstr("pipeline has 6 stages on 2 ranks, but the model has 4 blocks"));
  EXPECT_THAT(problem(interleaved, Given({2, 2})),
              HasSubstr("pipeline has 4 stages on 2 ranks, but pipeline.balance = [2, 2] has 2"));
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
}

TEST(MakePlanTest, StagesAreWhereTheScheduleHasThem) {
  const auto v = ScheduleFromCsv("0F0,3F0,3B0,0B0\n1F0,2F0,2B0,1B0\n", "v");
  ASSERT_TRUE(v.ok()) << v.status();
  const StagePlan plan = Plan({1, 1, 1, 1, 1, 1}, *v, Given({1, 2, 2, 1}));
  EXPECT_THAT(plan.rank_of_stage, ElementsAre(0, 1, 1, 0));
  EXPECT_EQ(plan.last_rank(), 0);
  EXPECT_THAT(plan.StagesOf(0), ElementsAre(0, 3));
  EXPECT_EQ(plan.RangesOf(1)[1].begin, 3);
  EXPECT_EQ(plan.StageOfBlock(2), 1);
}

}  // namespace
}  // namespace lockstep
