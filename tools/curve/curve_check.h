// Loss curves beside each other: how far apart, and where they part.

#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "core/report/metrics.h"

namespace lockstep {

// Two curves at one step.
struct CurveDeviation {
  int64_t step = 0;
  double actual = 0;
  double expected = 0;
  double relative = 0;  // |actual - expected| / |expected|; infinite where either is not finite

  // "step 7: 2.30214, expected 2.30259 (relative difference 1.95e-04)"
  std::string ToString() const;
};

struct CurveComparison {
  int64_t compared = 0;                         // rows that both have
  std::optional<CurveDeviation> largest;        // none where all rows are equal to the bit
  std::optional<CurveDeviation> first_outside;  // the first beyond the tolerance
};

// Compares row by row, as far as both curves go and their steps are the same, at most `rows`.
// `tolerance` is relative; 0 asks for equality. A loss that is infinite or NaN is outside of any
// tolerance, whatever the other one is: training has broken down there.
CurveComparison CompareCurves(const std::vector<LossPoint>& actual,
                              const std::vector<LossPoint>& expected, double tolerance,
                              size_t rows = SIZE_MAX);

// (actual - expected) / |expected| by step, as far as both curves go; 0 where both are the same.
std::vector<LossPoint> Differences(const std::vector<LossPoint>& actual,
                                   const std::vector<LossPoint>& expected);

// The points of a curve, for a chart.
std::vector<std::pair<double, double>> PointsOf(const std::vector<LossPoint>& curve);

// What a curve is held to.
struct CurveLimits {
  int64_t steps = 0;     // so many, from step 0 on without a gap, must both curves have
  double tolerance = 0;  // relative
};

// OK if the first `limits.steps` rows of `actual` agree with those of `expected`. Otherwise the
// message tells the first step that left the tolerance, with both values and how far they part
// later, or which curve lacks a row. `names` are what the message calls the two.
struct CurveNames {
  std::string actual = "the curve";
  std::string expected = "the expected curve";
};
absl::Status CheckCurve(const std::vector<LossPoint>& actual,
                        const std::vector<LossPoint>& expected, const CurveLimits& limits,
                        const CurveNames& names = {});

}  // namespace lockstep
