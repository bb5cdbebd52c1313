#include "core/report/cost_forecast.h"

#include <string>
#include <vector>

#include "absl/strings/str_format.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace lockstep {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

// The forecast of a pipeline of `pp` stages, a rank each, whose ranks wait for these fractions of a
// step.
std::string TextOf(int pp, const std::vector<double>& bubbles) {
  RunDescription run;
  run.settings.mesh.pp = pp;
  CostForecast forecast;
  for (const double bubble : bubbles) {
    forecast.costs.emplace_back().bubble_fraction = bubble;
    forecast.memory.emplace_back();
  }
  forecast.time.missing = "a test";
  return CostForecastText(run, forecast);
}

std::string Row(const std::string& name, const std::string& value) {
  return absl::StrFormat("    %-30s %14s\n", name, value);
}

TEST(CostForecastTest, SaysHowLongStagesWaitForEachOther) {
  EXPECT_THAT(
      TextOf(4, {0.1, 0.3, 0.25, 0.05}),
      HasSubstr("  share of a step spent waiting for other stages\n" +
                Row("all ranks together", "17.5 %") + Row("the one that waits most", "30.0 %")));
  EXPECT_THAT(TextOf(2, {0, 0}), AllOf(HasSubstr(Row("all ranks together", "0.0 %")),
                                       HasSubstr(Row("the one that waits most", "0.0 %"))));
}

TEST(CostForecastTest, OneStageWaitsForNoOther) {
  EXPECT_THAT(TextOf(1, {0, 0}), Not(HasSubstr("waiting for other stages")));
}

}  // namespace
}  // namespace lockstep
