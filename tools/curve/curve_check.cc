#include "tools/curve/curve_check.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "core/base/status.h"

namespace lockstep {
namespace {

double RelativeDifference(double actual, double expected) {
  if (!std::isfinite(actual) || !std::isfinite(expected)) {
    return std::numeric_limits<double>::infinity();
  }
  if (actual == expected) return 0;
  return std::abs(actual - expected) / std::abs(expected);  // infinite for an expected 0
}

// Steps 0, 1, ..., steps - 1 must be there.
absl::Status CheckRows(const std::vector<LossPoint>& curve, int64_t steps,
                       const std::string& name) {
  for (int64_t step = 0; step < steps; ++step) {
    if (step == static_cast<int64_t>(curve.size())) {
      return absl::OutOfRangeError(
          absl::StrCat(name, " ends after ", step, " of ", steps, " steps"));
    }
    if (curve[step].step != step) {
      return absl::OutOfRangeError(absl::StrCat(name, " has no row for step ", step, ": step ",
                                                curve[step].step, " stands in its place"));
    }
  }
  return absl::OkStatus();
}

}  // namespace

std::string CurveDeviation::ToString() const {
  return absl::StrFormat("step %d: %.9g, expected %.9g (relative difference %.2e)", step, actual,
                         expected, relative);
}

CurveComparison CompareCurves(const std::vector<LossPoint>& actual,
                              const std::vector<LossPoint>& expected, double tolerance,
                              size_t rows) {
  CurveComparison comparison;
  for (size_t i = 0; i < std::min({actual.size(), expected.size(), rows}); ++i) {
    if (actual[i].step != expected[i].step) break;
    ++comparison.compared;
    const CurveDeviation deviation = {
        .step = actual[i].step,
        .actual = actual[i].loss,
        .expected = expected[i].loss,
        .relative = RelativeDifference(actual[i].loss, expected[i].loss)};
    if (deviation.relative == 0) continue;
    if (!comparison.largest || deviation.relative > comparison.largest->relative) {
      comparison.largest = deviation;
    }
    if (!comparison.first_outside && deviation.relative > tolerance) {
      comparison.first_outside = deviation;
    }
  }
  return comparison;
}

std::vector<LossPoint> Differences(const std::vector<LossPoint>& actual,
                                   const std::vector<LossPoint>& expected) {
  std::vector<LossPoint> differences;
  for (size_t i = 0; i < std::min(actual.size(), expected.size()); ++i) {
    const double loss = actual[i].loss, goal = expected[i].loss;
    differences.push_back(
        {.step = actual[i].step, .loss = loss == goal ? 0 : (loss - goal) / std::abs(goal)});
  }
  return differences;
}

std::vector<std::pair<double, double>> PointsOf(const std::vector<LossPoint>& curve) {
  std::vector<std::pair<double, double>> points;
  for (const LossPoint& point : curve) {
    points.emplace_back(static_cast<double>(point.step), point.loss);
  }
  return points;
}

absl::Status CheckCurve(const std::vector<LossPoint>& actual,
                        const std::vector<LossPoint>& expected, const CurveLimits& limits,
                        const CurveNames& names) {
  LS_RETURN_IF_ERROR(CheckRows(actual, limits.steps, names.actual));
  LS_RETURN_IF_ERROR(CheckRows(expected, limits.steps, names.expected));
  const CurveComparison comparison =
      CompareCurves(actual, expected, limits.tolerance, static_cast<size_t>(limits.steps));
  if (!comparison.first_outside) return absl::OkStatus();
  return absl::OutOfRangeError(absl::StrFormat(
      "%s leaves %s, relative tolerance %g, at %s\n  largest difference in %d steps: %s",
      names.actual, names.expected, limits.tolerance, comparison.first_outside->ToString(),
      limits.steps, comparison.largest->ToString()));
}

}  // namespace lockstep
