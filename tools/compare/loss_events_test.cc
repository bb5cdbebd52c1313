#include "tools/compare/loss_events.h"

#include <limits>
#include <string>
#include <vector>

#include "core/base/file.h"
#include "core/report/testing/event_scalars.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace lockstep {
namespace {

using ::testing::ElementsAre;

ComparedRun MakeRun(const std::string& label, const std::vector<LossPoint>& losses) {
  ComparedRun run;
  run.label = label;
  run.run.losses = losses;
  return run;
}

class LossEventsTest : public ::testing::Test {
 protected:
  const std::string folder_ =
      ::testing::TempDir() + "/" + ::testing::UnitTest::GetInstance()->current_test_info()->name();
};

TEST_F(LossEventsTest, EachRunHasItsCurve) {
  constexpr double kInfinite = std::numeric_limits<double>::infinity();
  const auto status = WriteLossEvents(
      {{.workload = "gpt",
        .runs = {MakeRun("single", {{0, 2.5}, {1, 1.25}}),
                 MakeRun("tp tp=2/ep=2", {{0, 2.5}, {7, kInfinite}}), MakeRun("failed", {})}},
       {.workload = "", .runs = {MakeRun("single", {{3, 0.1f}})}}},
      folder_);
  ASSERT_TRUE(status.ok()) << status;
  EXPECT_THAT(ReadEventScalars(folder_ + "/gpt/single"),
              ElementsAre(EventScalar{"loss", 0, 2.5}, EventScalar{"loss", 1, 1.25}));
  EXPECT_THAT(ReadEventScalars(folder_ + "/gpt/tp tp=2_ep=2"),
              ElementsAre(EventScalar{"loss", 0, 2.5}, EventScalar{"loss", 7, kInfinite}));
  EXPECT_THAT(ReadEventScalars(folder_ + "/unknown/single"),
              ElementsAre(EventScalar{"loss", 3, 0.1f}));
  EXPECT_FALSE(PathExists(folder_ + "/gpt/failed"));
}

TEST_F(LossEventsTest, ALaterComparisonTakesTheEarliersPlace) {
  for (const double loss : {1.0, 2.0}) {
    const auto status =
        WriteLossEvents({{.workload = "gpt", .runs = {MakeRun("single", {{0, loss}})}}}, folder_);
    ASSERT_TRUE(status.ok()) << status;
  }
  EXPECT_THAT(ReadEventScalars(folder_ + "/gpt/single"), ElementsAre(EventScalar{"loss", 0, 2.0}));
}

}  // namespace
}  // namespace lockstep
