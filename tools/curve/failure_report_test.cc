#include "tools/curve/failure_report.h"

#include <limits>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tools/report/text.h"

namespace lockstep {
namespace {

using ::testing::AllOf;
using ::testing::ContainsRegex;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Pair;
using ::testing::SizeIs;

const std::vector<LossPoint> kGolden = {{0, 2.0}, {1, 1.0}, {2, 0.5}};

HeldCurve Stayed(const std::string& strategy) {
  return {.strategy = strategy, .losses = {{0, 2.0}, {1, 1.0}}, .status = absl::OkStatus()};
}

HeldCurve Moved(const std::string& strategy, double loss = 1.25) {
  return {.strategy = strategy,
          .losses = {{0, 2.0}, {1, loss}},
          .status = absl::OutOfRangeError("left")};
}

HeldCurve Broken(const std::string& strategy) {
  return {.strategy = strategy, .losses = {}, .status = absl::AbortedError("exit code 1\nmore")};
}

Report Of(const std::vector<HeldCurve>& curves) {
  return FailureReport("w/expected_loss.csv", kGolden, curves, 1e-3);
}

std::string Text(const std::vector<HeldCurve>& curves) { return TextOf(Of(curves)); }

TEST(FailureReportTest, TellsTheStepAndBothValues) {
  EXPECT_THAT(
      Text({Stayed("single"), Moved("ddp"), Broken("tp")}),
      AllOf(HasSubstr("tolerance 0.001"), ContainsRegex("single +did not move +- +- +- +0\n"),
            ContainsRegex("ddp +moved +1 +1.25 +1 +2.5e-01\n"),
            ContainsRegex("tp +did not run: exit code 1\n")));
}

TEST(FailureReportTest, TellsWhatItMeans) {
  EXPECT_THAT(Text({Stayed("single"), Moved("ddp")}), HasSubstr("Only ddp moved"));
  EXPECT_THAT(Text({Moved("single"), Moved("ddp"), Broken("tp")}), HasSubstr("All moved"));
  EXPECT_THAT(Text({Stayed("single"), Moved("ddp"), Moved("fsdp")}),
              HasSubstr("ddp, fsdp moved, single did not"));
  EXPECT_THAT(Text({Stayed("single"), Stayed("ddp")}), HasSubstr("No strategy left the tolerance"));
}

TEST(FailureReportTest, AnUndefinedLossIsTold) {
  EXPECT_THAT(Text({Moved("ddp", std::numeric_limits<double>::quiet_NaN())}),
              ContainsRegex("ddp +moved +1 +nan +1 +inf"));
}

TEST(FailureReportTest, DrawsTheCurvesAsFarAsTheyGoAndTheirDifferences) {
  const Report report = Of({Stayed("single"), Moved("ddp")});
  const auto& items = report.sections[0].items;
  ASSERT_THAT(items, SizeIs(4));
  const auto& losses = std::get<LineChart>(std::get<Chart>(items[2]).body).lines;
  ASSERT_THAT(losses, SizeIs(3));
  EXPECT_THAT(losses[0].points, ElementsAre(Pair(0, 2.0), Pair(1, 1.0)));
  EXPECT_THAT(losses[2].points, ElementsAre(Pair(0, 2.0), Pair(1, 1.25)));
  const auto& differences = std::get<LineChart>(std::get<Chart>(items[3]).body).lines;
  ASSERT_THAT(differences, SizeIs(2));
  EXPECT_THAT(differences[1].points, ElementsAre(Pair(0, 0), Pair(1, 0.25)));
}

}  // namespace
}  // namespace lockstep
