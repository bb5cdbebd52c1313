#include "tools/curve/curve_check.h"

#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "core/base/file.h"
#include "core/report/metrics.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace lockstep {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr double kTolerance = 1e-3;

// Losses of steps 0, 1, 2, ...
std::vector<LossPoint> Curve(const std::vector<double>& losses) {
  std::vector<LossPoint> curve;
  for (double loss : losses) {
    curve.push_back({.step = static_cast<int64_t>(curve.size()), .loss = loss});
  }
  return curve;
}

std::string Message(const absl::Status& status) { return std::string(status.message()); }

TEST(CheckCurveTest, EqualCurvesPassWithoutTolerance) {
  const auto curve = Curve({2.5, 2.25, 2.0});
  EXPECT_TRUE(CheckCurve(curve, curve, {.steps = 3}).ok());
}

TEST(CheckCurveTest, WithinOneTolerancePasses) {
  const auto expected = Curve({2.0, 2.0, 2.0});
  const auto actual = Curve({2.0, 2.0 * (1 + 0.99 * kTolerance), 2.0 * (1 - 0.99 * kTolerance)});
  const absl::Status status = CheckCurve(actual, expected, {.steps = 3, .tolerance = kTolerance});
  EXPECT_TRUE(status.ok()) << status;
}

TEST(CheckCurveTest, BeyondOneToleranceFailsAtTheFirstSuchStep) {
  const auto expected = Curve({2.0, 2.0, 2.0, 2.0});
  const auto actual = Curve({2.0, 2.0 * (1 + 1.01 * kTolerance), 2.0, 3.0});
  const absl::Status status = CheckCurve(actual, expected, {.steps = 4, .tolerance = kTolerance},
                                         {.actual = "ddp", .expected = "expected_loss.csv"});
  ASSERT_FALSE(status.ok());
  EXPECT_THAT(Message(status),
              AllOf(HasSubstr("ddp leaves expected_loss.csv"), HasSubstr("tolerance 0.001"),
                    HasSubstr("step 1: 2.00202, expected 2 (relative difference 1.01e-03)"),
                    HasSubstr("step 3: 3, expected 2 (relative difference 5.00e-01)")));
}

TEST(CheckCurveTest, BelowTheToleranceFailsAsWell) {
  const auto expected = Curve({2.0});
  const auto actual = Curve({2.0 * (1 - 1.01 * kTolerance)});
  EXPECT_FALSE(CheckCurve(actual, expected, {.steps = 1, .tolerance = kTolerance}).ok());
}

TEST(CheckCurveTest, ExactMeansEveryBit) {
  const auto expected = Curve({2.0, 2.0});
  const auto actual = Curve({2.0, std::nextafter(2.0, 3.0)});
  EXPECT_FALSE(CheckCurve(actual, expected, {.steps = 2, .tolerance = 0}).ok());
}

TEST(CheckCurveTest, OnlyTheFirstStepsCount) {
  const auto expected = Curve({2.0, 2.0, 2.0});
  const auto actual = Curve({2.0, 2.0, 9.0});
  EXPECT_TRUE(CheckCurve(actual, expected, {.steps = 2}).ok());
  EXPECT_FALSE(CheckCurve(actual, expected, {.steps = 3}).ok());
}

TEST(CheckCurveTest, ATruncatedCurveFails) {
  const auto whole = Curve({2.0, 1.9, 1.8}), cut = Curve({2.0, 1.9});
  const CurveNames names = {.actual = "ddp", .expected = "expected_loss.csv"};
  EXPECT_EQ(Message(CheckCurve(cut, whole, {.steps = 3, .tolerance = 1}, names)),
            "ddp ends after 2 of 3 steps");
  EXPECT_EQ(Message(CheckCurve(whole, cut, {.steps = 3, .tolerance = 1}, names)),
            "expected_loss.csv ends after 2 of 3 steps");
}

TEST(CheckCurveTest, AMissingRowFails) {
  const auto whole = Curve({2.0, 2.0, 2.0});
  const std::vector<LossPoint> gap = {{0, 2.0}, {2, 2.0}, {3, 2.0}};
  EXPECT_EQ(Message(CheckCurve(gap, whole, {.steps = 3, .tolerance = 1})),
            "the curve has no row for step 1: step 2 stands in its place");
}

TEST(CheckCurveTest, ACurveThatBeginsLaterFails) {
  const auto whole = Curve({2.0, 2.0});
  const std::vector<LossPoint> late = {{1, 2.0}, {2, 2.0}};
  EXPECT_FALSE(CheckCurve(late, whole, {.steps = 2, .tolerance = 1}).ok());
}

TEST(CheckCurveTest, NanAndInfinityFailWhateverTheTolerance) {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  const double infinity = std::numeric_limits<double>::infinity();
  for (double bad : {nan, infinity, -infinity}) {
    const CurveLimits limits = {.steps = 2, .tolerance = 1e30};
    EXPECT_FALSE(CheckCurve(Curve({2.0, bad}), Curve({2.0, 2.0}), limits).ok()) << bad;
    EXPECT_FALSE(CheckCurve(Curve({2.0, 2.0}), Curve({2.0, bad}), limits).ok()) << bad;
    EXPECT_FALSE(CheckCurve(Curve({2.0, bad}), Curve({2.0, bad}), limits).ok()) << bad;
  }
}

TEST(CheckCurveTest, AnExpectedZeroAllowsOnlyZero) {
  EXPECT_TRUE(CheckCurve(Curve({0.0}), Curve({0.0}), {.steps = 1}).ok());
  EXPECT_FALSE(CheckCurve(Curve({1e-30}), Curve({0.0}), {.steps = 1, .tolerance = 1e6}).ok());
}

TEST(CompareCurvesTest, StopsWhereOneEnds) {
  const CurveComparison comparison = CompareCurves(Curve({1.0, 3.0, 3.0}), Curve({1.0, 2.0}), 0);
  EXPECT_EQ(comparison.compared, 2);
  ASSERT_TRUE(comparison.largest.has_value());
  EXPECT_EQ(comparison.largest->step, 1);
  EXPECT_DOUBLE_EQ(comparison.largest->relative, 0.5);
}

TEST(CompareCurvesTest, EqualCurvesHaveNoLargestDifference) {
  const CurveComparison comparison = CompareCurves(Curve({1.0, 2.0}), Curve({1.0, 2.0}), 0);
  EXPECT_EQ(comparison.compared, 2);
  EXPECT_FALSE(comparison.largest.has_value());
  EXPECT_FALSE(comparison.first_outside.has_value());
}

// The file's own form is checked where it is read.
class CurveFileTest : public testing::Test {
 protected:
  absl::Status ReadText(const std::string& text) {
    const std::string path = testing::TempDir() + "/curve.csv";
    EXPECT_TRUE(WriteFileAtomically(path, text).ok());
    return ReadLossCurve(path).status();
  }
};

TEST_F(CurveFileTest, AWrongHeaderFails) {
  EXPECT_THAT(Message(ReadText("step,accuracy\n0,1\n")), HasSubstr("step,loss"));
  EXPECT_FALSE(ReadText("0,1\n1,2\n").ok());
  EXPECT_FALSE(ReadText("").ok());
}

TEST_F(CurveFileTest, ACutFileFails) {
  EXPECT_TRUE(ReadText("step,loss\n0,1.5\n1,1.25\n").ok());
  EXPECT_FALSE(ReadText("step,loss\n0,1.5\n1,1.2").ok());
  EXPECT_FALSE(ReadText("step,loss\n0,1.5\n1,\n").ok());
}

}  // namespace
}  // namespace lockstep
